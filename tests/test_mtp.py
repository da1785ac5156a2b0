"""Depths of multi-token prediction: transformers' own layer for them is the judge of their parameters,
published and hand-derived numbers of their work."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidOption, Lora, Training, describe
from flopcalc.generation import decode_flops
from flopcalc.verify import build_real_model

DEEPSEEK_V3 = {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
V4_FLASH = {
    "model_type": "deepseek_v4", "num_nextn_predict_layers": 1, "hidden_size": 4096, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1024, "o_lora_rank": 1024,
    "o_groups": 8, "qk_rope_head_dim": 64, "hc_mult": 4, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512,
    "sliding_window": 128, "vocab_size": 129280, "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
}  # fmt: skip


def test_deepseek_v3_adds_a_layer_and_a_pass_through_the_head() -> None:
    """Case A11. 688,062,464 = 2h^2 + MLA + router, 8 of 256 experts and the shared one."""
    assert describe(DEEPSEEK_V3).num_matmul_params() == 36_624_596_992
    with_head, without = describe(DEEPSEEK_V3, mtp=True), describe(DEEPSEEK_V3, mtp=True, mtp_head=False)
    assert with_head.num_matmul_params() - 36_624_596_992 == 1_614_741_504
    assert without.num_matmul_params() - 36_624_596_992 == 688_062_464
    assert with_head.num_params() == without.num_params(), "the head is the model's own"


def test_deepseek_v4_flash_is_torchtitans() -> None:
    """PR 4441: 92,762,352,876 FLOPs per token at 4096 with one depth, 290,942,278,866 parameters."""
    assert describe(V4_FLASH, mtp=True).num_params() == 290_942_278_866
    counter = FlopCounter(V4_FLASH, "torchtitan", training=Training(mtp=True))
    assert counter([4096]) == 4096 * 92_762_352_876


def test_depths_are_off_unless_asked_for() -> None:
    plain = describe(DEEPSEEK_V3)
    assert list(plain.parameters()) == list(describe(DEEPSEEK_V3 | {"num_nextn_predict_layers": 0}).parameters())
    assert not any(name.startswith("mtp") for name, _ in plain.parameters())
    assert FlopCounter(DEEPSEEK_V3)([100]) == FlopCounter(DEEPSEEK_V3, training=Training())([100])


@pytest.mark.parametrize("convention", ["standard", "exact", "matmul-dense"])
def test_each_depth_costs_the_same(convention: str) -> None:
    none, one, three = (FlopCounter(DEEPSEEK_V3, convention, training=Training(mtp=n))([64, 7]) for n in (0, 1, 3))
    assert three - none == 3 * (one - none) > 0


def test_work_of_the_head_is_shown_as_such() -> None:
    counter = FlopCounter(DEEPSEEK_V3, "exact", training=Training(mtp=True))
    kinds, modules = counter.breakdown([10]).by_kind(), counter.breakdown([10]).by_module()
    assert kinds["head"] == 2 * 6 * 10 * 129280 * 7168
    assert modules["mtp.layers.0.shared_head"] == 6 * 10 * 129280 * 7168
    assert sum(kinds.values()) == modules[""] == counter([10])


@pytest.mark.parametrize(
    "model_type", ["deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "qwen3_next",
                   "qwen3_5_text", "qwen3_5_moe_text"],
)  # fmt: skip
def test_parameters_are_those_of_transformers_own_layer(model_type: str) -> None:
    import torch
    from transformers.modeling_layers import MtpLayer

    fields = {"num_hidden_layers": 4}
    model = build_real_model(model_type, fields).model
    layer, norm = type(model.layers[-1]), type(model.norm)
    with torch.device("meta"):
        real = MtpLayer(model.config, layer, norm, 3)
    prefix = "mtp.layers.0."
    tree = describe({**fields, "model_type": model_type}, mtp=1)
    ours = {name.removeprefix(prefix): shape for name, shape in tree.parameters() if name.startswith(prefix)}
    assert ours == {name: tuple(parameter.shape) for name, parameter in real.named_parameters()}


def test_light_depths_of_mimo_are_a_third_of_a_billion() -> None:
    """4096 * (64 * 192 + 8 * 192 + 8 * 128) + 64 * 128 * 4096 + 64 sinks, an MLP of 3 * 4096 * 16384, a
    projection of 8192 * 4096 and five norms: the 0.33B of its model card."""
    mimo = {"model_type": "mimo_v2_flash"}
    added = describe(mimo, mtp=1).num_params() - describe(mimo).num_params()
    assert added == 60_817_408 + 33_554_432 + 64 + 201_326_592 + 33_554_432 + 5 * 4096


def test_depths_of_nemotron_follow_their_own_pattern() -> None:
    tree = describe({"model_type": "nemotron_h", "mtp_hybrid_override_pattern": "*E-"}, mtp=1)
    names = [name for name, _ in tree.parameters()]
    block = "mtp.layers.0.mtp_block"
    assert f"{block}.0.mixer.q_proj.weight" in names
    assert f"{block}.1.mixer.experts.up_proj" in names
    assert f"{block}.2.mixer.up_proj.weight" in names


def test_generation_leaves_depths_out() -> None:
    trained = FlopCounter(DEEPSEEK_V3, "exact", training=Training(mtp=True))
    assert decode_flops(trained, 10, 5) == decode_flops(DEEPSEEK_V3, 10, 5, convention="exact")


def test_an_adapter_on_the_head_runs_again_at_each_depth() -> None:
    lora = Training(lora=Lora(r=4, target_modules=("lm_head",)), mtp=2)
    counter = FlopCounter(DEEPSEEK_V3, training=lora)
    assert counter.num_adapter_params() == 4 * (7168 + 129280)
    assert counter.breakdown([10]).by_kind()["adapter"] == 3 * 6 * 10 * 4 * (7168 + 129280)


def test_depths_can_be_trained_alone() -> None:
    counter = FlopCounter(DEEPSEEK_V3, "exact", training=Training(mtp=True, mtp_head=False, trained=("mtp",)))
    modules = counter.breakdown([10]).by_module()
    forward = FlopCounter(DEEPSEEK_V3, "exact", "forward").breakdown([10]).by_module()
    assert modules["model"] == forward["model"], "what lies before the depths runs forward only"
    assert modules["lm_head"] == forward["lm_head"]
    projection = modules["mtp.layers.0.eh_proj"]
    assert projection == 3 * 2 * 10 * 2 * 7168 * 7168, "its input passes trained norms"


@pytest.mark.parametrize(
    ("config", "depths", "said"),
    [
        (
            {"model_type": "llama"},
            True,
            "model_type 'llama', whose depths are not known; known are those of deepseek_v3",
        ),
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": 0}, True, "found True, and 0 depths in the config"),
        ({"model_type": "qwen3_next"}, True, "pass their number, as mtp=1"),
    ],
)
def test_depths_that_are_not_there_are_a_named_error(config: dict[str, Any], depths: int, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        FlopCounter(config, training=Training(mtp=depths))


def test_a_tree_without_depths_cannot_be_trained_with_them() -> None:
    with pytest.raises(InvalidOption, match="for a tree without depths"):
        FlopCounter(describe(DEEPSEEK_V3), training=Training(mtp=True))
    tree = describe(DEEPSEEK_V3, mtp=True)
    assert FlopCounter(tree, training=Training(mtp=True))([9]) == FlopCounter(DEEPSEEK_V3, training=Training(mtp=1))(
        [9]
    )
