"""Published types that transformers does not know: one total each, which their publishers print too or
which is derived by hand beside it."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import InvalidConfig, InvalidOption, describe, estimate_flops
from flopcalc.counting import FlopCounter

Fields = dict[str, Any]

GLM = {"model_type": "chatglm", "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2}
BLOCK = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 3.0}}

PUBLISHED: list[tuple[str, Fields, int]] = [
    # 28 layers of 4096*4608 + 4608 + 4096*4096 + 3*13696*4096 + 2*4096 = 203,960,832, 2 * 65024*4096, a norm
    ("ChatGLM2-6B", {**GLM, "add_qkv_bias": True}, 6_243_584_000),
    ("GLM-4-9B", {**GLM, "add_qkv_bias": True, "num_layers": 40, "padded_vocab_size": 151552}, 9_399_951_360),
    ("Qwen-7B", {"model_type": "qwen"}, 7_721_324_544),
    ("Qwen-1.8B", {"model_type": "qwen", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 24,
                   "num_attention_heads": 16}, 1_836_828_672),
    ("Baichuan2-7B", {"model_type": "baichuan"}, 7_505_973_248),
    # llama-7b's 32 * 202,383,360 and 32 * 4*4096 biases, 2 * 103168*4096 and a norm
    ("InternLM-7B", {"model_type": "internlm"}, 7_321_948_160),
    ("InternLM2.5-7B", {"model_type": "internlm2", "vocab_size": 92544, "intermediate_size": 14336,
                        "num_key_value_heads": 8, "bias": False}, 7_737_708_544),
    ("MiniCPM-2B", {"model_type": "minicpm", "vocab_size": 122753, "hidden_size": 2304, "intermediate_size": 5760,
                    "num_hidden_layers": 40, "num_attention_heads": 36}, 2_724_880_896),
    # 36 layers of 41,943,040 + 6144 biases + 135,266,304 + 8192 = 177,223,680 and 2 * 151680*4096 + 4096
    ("MiMo-7B", {"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008}, 7_622_619_136),
    # 40 layers of 4*5120*5120 + 3*5120*15360 + 4*5120 = 340,807,680 and 2 * 84608*5120 + 2*5120
    ("Orion-14B", {"model_type": "orion"}, 14_498_703_360),
    ("DeepSeekMoE-16B", {"model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944,
                         "num_hidden_layers": 28, "num_attention_heads": 16, "moe_intermediate_size": 1408,
                         "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
                         "first_k_dense_replace": 1}, 16_375_728_128),
    ("phi-1.5", {"model_type": "phi-msft", "n_embd": 2048, "n_head": 32, "n_layer": 24, "vocab_size": 51200},
     1_418_270_720),
    # 32 layers of 41,943,040 + 65 * 37,748,736 + 64*4096 + 2*128 + 2*4096, 128167*4096 once, a norm
    ("Hunyuan-A13B", {"model_type": "hunyuan", "vocab_size": 128167, "hidden_size": 4096, "intermediate_size": 3072,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128,
                      "num_experts": 64, "moe_topk": [8] * 32, "use_mixed_mlp_moe": True, "use_qk_norm": True,
                      "tie_word_embeddings": True}, 80_393_183_232),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "total"), [case[1:] for case in PUBLISHED], ids=[case[0] for case in PUBLISHED])
def test_total_parameters_are_those_of_the_published_model(fields: Fields, total: int) -> None:
    assert describe(fields).num_params() == total


def test_deepseek_ref_is_deepseek_v4() -> None:
    fields = {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0]}
    renamed = describe({"model_type": "deepseek_ref", **fields})
    assert list(renamed.parameters()) == list(describe({"model_type": "deepseek_v4", **fields}).parameters())


def test_mimo_predicts_one_token_further_on_request() -> None:
    fields = {"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008, "num_nextn_predict_layers": 1}
    more = describe(fields, mtp=True).num_params() - describe(fields).num_params()
    assert more == 177_223_680 + 2 * 4096 * 4096 + 3 * 4096  # a layer, its input matrix, three norms


def test_pruned_llama_layers_have_sizes_of_their_own() -> None:
    """Hidden 512, 8 heads of 64. Attention in groups of 2 has 4 key-value heads: 2*512*512 + 2*512*256; MLP
    widths int(2*3.0*512/3) = 1024, already whole 256, and int(2*1.1*512/3) = 375, rounded up to 512."""
    no_attention = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.1}}
    one_matrix = {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}}
    fields = {
        "model_type": "nemotron-nas", "vocab_size": 1000, "hidden_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 8, "block_configs": [BLOCK, no_attention, one_matrix],
    }  # fmt: skip
    first = 2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1024 + 2 * 512
    second = 3 * 512 * 512 + 512
    third = 512 * 512 + 512
    assert describe(fields).num_params() == first + second + third + 2 * 1000 * 512 + 512
    core = 2 * 8 * (64 + 64) * 10 * 10  # one layer attends
    assert FlopCounter(fields, "matmul-dense", "forward").by_kind([10])["attention"] == core


def test_step_3_5_has_more_heads_in_its_windows() -> None:
    """One full dense layer of 4 heads, one windowed sparse layer of 6; two key-value heads of 16 in both."""
    fields = {
        "model_type": "step3p5", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 16,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 8,
        "attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16},
        "moe_layers_enum": "1", "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 32,
        "share_expert_dim": 48,
    }  # fmt: skip
    full = 2 * 64 * 64 + 2 * 64 * 32 + 64 * 4 + 2 * 16 + 3 * 64 * 96 + 2 * 64
    windowed = 2 * 64 * 96 + 2 * 64 * 32 + 64 * 6 + 2 * 16 + 4 * 64 + 4 * 3 * 64 * 32 + 3 * 64 * 48 + 2 * 64
    assert describe(fields).num_params() == full + windowed + 2 * 100 * 64 + 64
    attention = FlopCounter(fields, "matmul-dense", "forward").by_kind([20])["attention"]
    assert attention == 2 * 4 * 32 * 20 * 20 + 2 * 6 * 32 * 20 * 8


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model_type": "chatglm", "inner_hidden_size": 16384}, "inner_hidden_size"),
        ({"model_type": "minicpm", "num_experts": 8}, "num_experts"),
        ({"model_type": "minicpm", "sparse_config": {"topk": 64}}, "sparse_config"),
        ({"model_type": "deepseek", "n_routed_experts": 64}, "num_experts_per_tok"),
        ({"model_type": "hunyuan", "use_cla": True}, "use_cla"),
        ({"model_type": "hunyuan", "moe_topk": [1]}, "moe_topk"),
        ({"model_type": "nemotron-nas", "block_configs": [BLOCK]}, "block_configs"),
        ({"model_type": "step3p5"}, "attention_other_setting"),
        ({"model_type": "step3p7", "num_hidden_layers": 45, "hidden_size": 4096}, "text_config: found none beside"),
    ],
)
def test_what_these_types_do_not_say_is_asked_for(fields: Fields, named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(fields)


def test_layers_behind_those_of_step_are_depths_of_multi_token_prediction() -> None:
    """One layer and two windowed depths, whose six heads are twice those of the layer; an MLP of 40 and a projection
    of two vectors to one, whose norms are five with those of the layer."""
    text: Fields = {
        "vocab_size": 100, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 8, "num_nextn_predict_layers": 2, "sliding_window": 4,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "moe_layers_enum": "0",
        "attention_other_setting": {"num_attention_heads": 6},
    }  # fmt: skip
    depth = 2 * 32 * 48 + 2 * 32 * 8 + 32 * 6 + 2 * 8 + 3 * 32 * 40 + 64 * 32 + 5 * 32
    for fields in ({"model_type": "step3p5", **text}, {"model_type": "step3p7", "text_config": text}):
        assert describe(fields, mtp=True).num_params() - describe(fields).num_params() == 2 * depth
    mixed = text | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    for said, unclear in (
        ("found depths of 2 kinds", mixed),
        ("found depths of 0 kinds", text | {"layer_types": ["full_attention"]}),
    ):
        with pytest.raises(InvalidOption, match=said):
            describe({"model_type": "step3p5", **unclear}, mtp=2)


def test_layers_that_run_in_loops_own_their_parameters_once() -> None:
    once: Fields = {"model_type": "dory", "num_hidden_layers": 4, "n_input_layers": 1, "n_output_layers": 1,
                    "layer_types": ["full_attention"] * 4, "n_recurrent_loops": 1}  # fmt: skip
    thrice = once | {"n_recurrent_loops": 3}
    assert describe(thrice).num_params() == describe(once).num_params()
    unrolled = once | {"num_hidden_layers": 8, "layer_types": ["full_attention"] * 8}  # 1 + 3*2 + 1
    assert estimate_flops(thrice, [100]) == estimate_flops(unrolled, [100])


def test_cycles_without_gradient_run_forward_only() -> None:
    """Of three fast cycles in the one slow cycle, the last learns: 3 + 1 + 1 passes of the fast stack, 3 of the
    slow one, against 2 * 3 where each ran once."""
    fields = {"model_type": "hrm_text", "num_hidden_layers": 2, "H_cycles": 1, "L_bp_cycles": [1]}

    def stacks(l_cycles: int) -> int:
        by_module = FlopCounter(fields | {"L_cycles": l_cycles}, "matmul-dense").breakdown([64]).by_module()
        return by_module["model"]

    assert 6 * stacks(3) == 8 * stacks(1)
