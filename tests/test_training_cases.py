"""Training by hand: LoRA, frozen parts, forward-only phases, recomputed activations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopcalc import CONVENTIONS, FlopCounter, InvalidOption, Lora, Training, describe

TL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 256,
}  # fmt: skip
QKV, OUT, MLP, HEAD, NORM = 64 * (64 + 2 * 32), 64 * 64, 3 * 64 * 128, 64 * 256, 64
LAYER = QKV + OUT + MLP
M = 2 * LAYER + HEAD
P = M + 5 * NORM
CORE = 2 * (2 * 4 * (16 + 16)) * 3  # FLOPs of a pair, both layers, forward and backward

LLAMA_70B = {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "intermediate_size": 28672, "vocab_size": 128256, "head_dim": 128,
}  # fmt: skip
M_70B = 80 * (8192 * (8192 + 2 * 1024) + 8192**2 + 3 * 8192 * 28672) + 128256 * 8192


def linear(counter: FlopCounter, tokens: int) -> int:
    """Work of weights alone."""
    return sum(flops for kind, flops in counter.breakdown([tokens]).by_kind().items() if kind != "attention")


def test_lora_on_llama_70b_costs_four_a_base_weight_and_six_an_adapter_weight() -> None:
    """Case A9. Its 175,636,480 adapter parameters are those of fused projections, as phi3 has them."""
    fused = {"model_type": "phi3", **LLAMA_70B}
    training = Training(lora=Lora(r=16, target_modules="all-linear"))
    weights_only = CONVENTIONS["matmul-dense"].changed(name="4 and 6", input_gradient="always")
    counter = FlopCounter(fused, weights_only, training=training)
    assert describe(fused).num_matmul_params() == M_70B == 69_501_714_432
    assert counter.num_adapter_params() == counter.num_trainable_params() == 175_636_480
    assert linear(counter, 100) == (4 * M_70B + 6 * 175_636_480) * 100
    full = FlopCounter(fused, weights_only)
    assert counter.breakdown([100]).by_kind()["attention"] == full.breakdown([100]).by_kind()["attention"]


def test_lora_under_standard_counts_every_frozen_parameter_four_times() -> None:
    counter = FlopCounter(TL, training=Training(lora=Lora(r=4, target_modules=("q_proj", "v_proj"))))
    adapters = 2 * (4 * (64 + 64) + 4 * (64 + 32))
    assert counter.num_adapter_params() == adapters
    assert counter([10]) == (4 * P + 6 * adapters) * 10 + CORE * 10 * 10


def test_lora_under_exact_leaves_out_what_autograd_leaves_out() -> None:
    """Nothing before layer 0's q_proj and v_proj learns: their inputs take no gradient, k_proj none at
    all, and the core none for its keys."""
    training = Training(lora=Lora(r=4, target_modules=("q_proj", "v_proj")))
    counter = FlopCounter(TL, "exact", training=training)
    everywhere = 4 * M + 6 * counter.num_adapter_params()
    skipped = 2 * QKV + 2 * (4 * 64 + 4 * 64)  # input gradients of q, k, v and of both A of layer 0
    keys = 2 * 4 * 16  # of the core: the gradient of the keys, a sixth of its work
    assert counter([10]) == (everywhere - skipped) * 10 + (CORE - keys) * 55


def test_expert_adapters_count_by_the_share_of_experts_that_a_token_uses() -> None:
    """Mixtral, rank 16 on both fused matrices of 8 experts, of which a token uses 2."""
    mixtral = {"model_type": "mixtral"}
    lora = Lora(r=16, target_modules=(), target_parameters=("gate_up_proj", "down_proj"))
    counter = FlopCounter(mixtral, training=Training(lora=lora))
    an_expert = 16 * (4096 + 2 * 14336) + 16 * (14336 + 4096)
    assert counter.num_adapter_params() == 32 * 8 * an_expert
    assert counter.breakdown([10]).by_kind()["adapter"] == 6 * 10 * 32 * 2 * an_expert


@given(st.lists(st.integers(0, 5000), max_size=5))
def test_training_everything_is_the_default(lengths: list[int]) -> None:
    for convention in ("standard", "exact"):
        counters = [FlopCounter(TL, convention, training=t) for t in (None, Training(), Training(trained=("*",)))]
        assert len({counter(lengths) for counter in counters}) == 1


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen3_vl", "gemma3"])
def test_training_everything_is_the_default_with_towers_too(model_type: str) -> None:
    for convention in ("standard", "exact"):
        counters = [
            FlopCounter({"model_type": model_type}, convention, training=t) for t in (None, Training(trained=("*",)))
        ]
        assert counters[0]([500], [(1, 28, 28)]) == counters[1]([500], [(1, 28, 28)])


def test_pixels_carry_no_gradient_under_exact() -> None:
    qwen = {"model_type": "qwen2_vl"}
    patch_embedding = 3 * 2 * 14 * 14 * 1280
    images = {
        convention: FlopCounter(qwen, convention).breakdown([9], [100]).by_module()
        for convention in ("exact", "standard")
    }
    name = "model.visual.patch_embed"
    assert images["exact"][name] == 2 * 2 * 100 * patch_embedding
    assert images["standard"][name] == 6 * 100 * patch_embedding


def test_a_frozen_tower_runs_forward_alone() -> None:
    for convention in ("exact", "standard"):
        frozen = FlopCounter({"model_type": "qwen2_vl"}, convention, training=Training(frozen=("model.visual",)))
        forward = FlopCounter({"model_type": "qwen2_vl"}, convention, "forward")
        tower = [counter.breakdown([99], [100]).by_module()["model.visual"] for counter in (frozen, forward)]
        assert tower[0] == tower[1] > 0


def test_lora_on_the_language_model_leaves_the_tower_forward_alone_under_standard() -> None:
    """No adapter is in the image stream, so no gradient passes there."""
    lora = Training(lora=Lora(r=4, target_modules=r".*language_model.*\.(q|v)_proj"))
    adapted = FlopCounter({"model_type": "qwen2_vl"}, training=lora).breakdown([99], [100]).by_module()
    forward = FlopCounter({"model_type": "qwen2_vl"}, phase="forward").breakdown([99], [100]).by_module()
    assert adapted["model.visual"] == forward["model.visual"]
    assert adapted["lm_head"] == 2 * forward["lm_head"]


@pytest.mark.parametrize("convention", ["standard", "exact"])
def test_head_alone_costs_a_forward_pass_and_one_weight_gradient(convention: str) -> None:
    forward = FlopCounter(TL, convention, "forward")([10])
    assert FlopCounter(TL, convention, training=Training(trained=("lm_head",)))([10]) == forward + 2 * HEAD * 10


def test_frozen_first_layer_costs_its_forward_pass() -> None:
    """Layer 1 reads what nothing learns before: its norm does, so q, k and v take input gradients."""
    counter = FlopCounter(TL, "exact", training=Training(frozen=("model.embed_tokens", "model.layers.0")))
    layers = 2 * LAYER + 6 * LAYER
    assert counter([10]) == (layers + 6 * HEAD) * 10 + (CORE // 2 + CORE // 6) * 55


def test_a_tied_head_is_frozen_with_its_embedding() -> None:
    tied = TL | {"tie_word_embeddings": True}
    counter = FlopCounter(tied, "exact", training=Training(frozen=("model.embed_tokens",)))
    assert counter.breakdown([10]).by_kind()["head"] == 4 * HEAD * 10
    assert counter.num_trainable_params() == describe(tied).num_params() - 256 * 64
    assert FlopCounter(tied, "exact", training=Training(frozen=("lm_head",)))([10]) == counter([10])


@given(st.lists(st.integers(0, 5000), max_size=5))
def test_forward_is_a_third_and_preference_training_adds_one_for_the_reference(lengths: list[int]) -> None:
    """Case A16."""
    train, forward = FlopCounter(TL), FlopCounter(TL, phase="forward")
    assert 3 * forward(lengths) == train(lengths)
    chosen, rejected = lengths, lengths[:2]
    step = train(chosen + rejected) + forward(chosen + rejected)
    assert step == 4 * forward(chosen + rejected)


@pytest.mark.parametrize(("recompute", "thirds"), [(None, 3), ("full", 4), (1.0, 4), (0.5, 3.5), (0, 3)])
def test_recomputed_activations_change_the_hardware_number_alone(recompute: Any, thirds: float) -> None:
    """Case A14: model FLOPs as they were, hardware FLOPs (3 + f) / 3 of them."""
    plain, counter = FlopCounter(TL), FlopCounter(TL, training=Training(recompute=recompute))
    assert counter([512, 7]) == plain([512, 7]) == plain.hardware_flops([512, 7])
    assert 3 * counter.hardware_flops([512, 7]) == thirds * counter([512, 7])


def test_selective_recompute_runs_the_attention_cores_again() -> None:
    counter = FlopCounter(TL, "exact", training=Training(recompute="selective"))
    assert counter.hardware_flops([10]) - counter([10]) == CORE // 3 * 55
    window = FlopCounter({"model_type": "gpt_oss"}, "exact", training=Training(recompute="selective"))
    core = FlopCounter({"model_type": "gpt_oss"}, "exact", "forward").breakdown([999]).by_kind()["attention"]
    assert window.hardware_flops([999]) - window([999]) == core


def test_full_recompute_with_lora_adds_one_forward_pass_with_its_adapters() -> None:
    training = Training(lora=Lora(r=4, target_modules=("q_proj",)), recompute="full")
    counter = FlopCounter(TL, training=training)
    forward = 2 * (P + counter.num_adapter_params()) * 10 + CORE // 3 * 100
    assert counter.hardware_flops([10]) - counter([10]) == forward
    assert FlopCounter(TL, phase="forward", training=training)([10]) == forward


def test_a_forward_phase_recomputes_nothing() -> None:
    counter = FlopCounter(TL, phase="forward", training=Training(recompute="full"))
    assert counter.hardware_flops([10]) == counter([10])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recompute": 1.5}, r"Training\.recompute: found 1.5, expected 'full', 'selective' or a fraction"),
        ({"recompute": -0.1}, r"Training\.recompute: found -0.1"),
        ({"recompute": "half"}, r"Training\.recompute: found 'half'"),
        ({"frozn": ("x",)}, r"Training\.frozn: found"),
        ({"lora": "r=8"}, r"Training\.lora: found 'r=8'"),
        ({"trained": "lm_head"}, r"Training\.trained: found 'lm_head'"),
        ({"mtp": -1}, r"Training\.mtp"),
    ],
)
def test_what_is_wrong_with_a_training_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        Training(**options)


@pytest.mark.parametrize("field", ["trained", "frozen"])
def test_a_pattern_that_matches_nothing_is_named(field: str) -> None:
    with pytest.raises(InvalidOption, match=rf"Training\.{field}: found pattern 'model.vision', which matches no"):
        FlopCounter(TL, training=Training(**{field: ("model.vision",)}))
