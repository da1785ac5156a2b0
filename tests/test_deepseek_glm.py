"""DeepSeek, GLM, Kimi, MiniMax and MiMo: what an operator counter cannot judge.

An eager run multiplies every key and masks later, and runs recurrences in chunks of its own. So the
sparse reads are checked here against loops over queries and keys, the recurrences against the
modelling code's loops written out, and the totals against published numbers.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from flopcalc import FlopCounter, InvalidConfig, describe
from flopcalc.architectures.blocks import Multimodal
from flopcalc.architectures.deepseek import DeepseekV3Config, deepseek_v3

WINDOWED, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"

GLM_5_3 = {"model_type": "glm_moe_dsa", "index_topk_freq": 4, "index_skip_topk_offset": 3}
V4_FLASH = {"model_type": "deepseek_v4", "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "num_hash_layers": 3}
"""The published files: every other field has its class default."""

TINY = {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16, "vocab_size": 64}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2, "v_head_dim": 5}
DSA: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    **TINY,
    **LATENT,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "index_topk": 7,
    "index_n_heads": 3,
    "index_head_dim": 10,
    "indexer_types": ["full", "full", "shared", "shared", "full", "shared"],
}
V4: dict[str, Any] = {
    "model_type": "deepseek_v4",
    **TINY,
    "num_attention_heads": 4,
    "head_dim": 6,
    "q_lora_rank": 8,
    "o_groups": 2,
    "o_lora_rank": 8,
    "sliding_window": 5,
    "index_n_heads": 3,
    "index_head_dim": 10,
    "index_topk": 2,
    "compress_rates": {SPARSE: 3, HEAVY: 8},
}


def by_kind(config: dict[str, Any], tokens: int, convention: str, phase: Any = "train") -> dict[str, int]:
    return FlopCounter(config, convention, phase).breakdown([tokens]).by_kind()


def v4_of(kind: str) -> dict[str, Any]:
    return V4 | {"num_hidden_layers": 1, "layer_types": [kind]}


# --- published numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "convention", "tokens", "published", "flops_per_token"),
    [
        (GLM_5_3, "standard", 8192, "2.7461e+11", 274_609_804_800),
        (GLM_5_3, "standard", 65536, "2.8447e+11", 284_474_807_808),
        (V4_FLASH, "standard", 8192, "8.7221e+10", 87_220_626_954),
        (V4_FLASH, "standard", 65536, "9.5676e+10", 95_676_343_818),
        (V4_FLASH, "torchtitan", 8192, "8.8630e+10", 88_629_913_098),
        (V4_FLASH, "torchtitan", 65536, "1.0695e+11", 106_950_632_970),
    ],
)
def test_the_published_per_document_table_comes_out(
    config: dict[str, Any], convention: str, tokens: int, published: str, flops_per_token: int
) -> None:
    flops = FlopCounter(config, convention)([tokens])
    assert flops == flops_per_token * tokens
    assert f"{flops / tokens:.4e}" == published


def test_torchtitan_s_two_v4_cells_differ_from_ours_by_the_indexers_backward_alone() -> None:
    """21 indexing layers of 64 heads of 128 score 2048 entries at 8192 tokens: 4 FLOPs per
    multiply-add more than the forward pass."""
    counters = [FlopCounter(V4_FLASH, convention) for convention in ("torchtitan", "standard")]
    assert counters[0]([8192]) - counters[1]([8192]) == 4 * 21 * 64 * 128 * 2048 * 8192


def test_deepseek_v3_s_weights_of_one_token_and_torchtitan_s_total() -> None:
    """Main model, without the multi-token prediction depth that its files announce."""
    config = {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
    assert describe(config).num_matmul_params() == 36_624_596_992
    assert FlopCounter(config, "torchtitan")([4096]) == 281_158_232_064 * 4096


def test_kimi_k2_is_deepseek_v3_under_another_name() -> None:
    fields = {"n_routed_experts": 384, "num_attention_heads": 64, "first_k_dense_replace": 1, "vocab_size": 163840}
    kimi, deepseek = (fields | {"model_type": name} for name in ("kimi_k2", "deepseek_v3"))
    assert list(describe(kimi).parameters()) == list(describe(deepseek).parameters())
    assert FlopCounter(kimi)([513]) == FlopCounter(deepseek)([513])


# --- DeepSeek sparse attention -------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 6, 7, 8, 23])
def test_each_query_reads_its_top_keys_and_an_indexer_scores_all_visible_ones(tokens: int) -> None:
    reads = scored = 0
    for query in range(tokens):
        visible = range(query + 1)
        picked = sorted(visible, key=lambda key: key * 31 % 17)[:7]
        reads += len(picked)
        scored += len(visible)
    owners = 3  # of the six layers, those with an indexer
    exact = by_kind(DSA, tokens, "exact")
    assert exact["attention"] == 3 * 6 * 4 * (2 * (6 + 2) + 2 * 5) * reads  # 6 layers, 4 heads: q.k and weights.v
    assert exact["index_scores"] == owners * 3 * 2 * 10 * scored  # no backward
    dense = by_kind(DSA, tokens, "standard")
    assert dense["attention"] == 3 * 6 * 4 * (2 * (6 + 2) + 2 * 5) * tokens * min(tokens, 7)
    assert dense["index_scores"] == owners * 3 * 2 * 10 * tokens**2


def test_layers_that_share_an_indexer_own_none_of_its_weights() -> None:
    owners = {name.split(".")[2] for name, _ in describe(DSA).parameters() if ".indexer." in name}
    assert owners == {"0", "1", "4"}
    one = 8 * 3 * 10 + 32 * 10 + 32 * 3 + 2 * 10  # wq_b, wk, weights_proj, k_norm
    shared = DSA | {"indexer_types": ["full"] + ["shared"] * 5}
    assert describe(DSA).num_params() - describe(shared).num_params() == 2 * one


def test_an_indexer_s_weights_run_forward_only_under_exact_and_three_times_under_standard() -> None:
    matrices, vectors = 3 * (8 * 3 * 10 + 32 * 10 + 32 * 3), 3 * 2 * 10
    for convention, expected in (("exact", 2 * matrices), ("standard", 6 * (matrices + vectors))):
        rows = FlopCounter(DSA, convention).breakdown([1]).rows
        indexers = [flops for path, kind, flops in rows if ".indexer." in path and kind != "index_scores"]
        assert sum(indexers) == expected


def test_index_share_schedules_are_read_from_types_pattern_or_frequency() -> None:
    def owners(**fields: Any) -> list[int]:
        config = {key: value for key, value in DSA.items() if key != "indexer_types"} | fields
        names = [name for name, _ in describe(config).parameters() if name.endswith("indexer.wk.weight")]
        return [int(name.split(".")[2]) for name in names]

    assert owners() == [0, 1, 2, 3, 4, 5]
    assert owners(index_topk_pattern="FSSFFS") == [0, 3, 4]
    assert owners(index_topk_pattern=["full", "shared"] * 3) == [0, 2, 4]
    assert owners(index_topk_freq=3, index_skip_topk_offset=2) == [0, 1, 4]
    assert owners(num_hidden_layers=78, index_topk_freq=4, index_skip_topk_offset=3) == [0, 1, *range(2, 78, 4)]


# --- DeepSeek-V4 ---------------------------------------------------------------------------------


def closed_entries(query: int, rate: int) -> list[int]:
    """Compressed entries whose tokens all lie at or before the query (positions from 0)."""
    return [entry for entry in range(query + 1) if (entry + 1) * rate <= query + 1]


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 8, 9, 16, 29])
@pytest.mark.parametrize("kind", [WINDOWED, SPARSE, HEAVY])
def test_a_v4_layer_reads_its_window_and_its_compressed_entries(kind: str, tokens: int) -> None:
    reads = scored = 0
    for query in range(tokens):
        reads += sum(query - 5 < key <= query for key in range(tokens))
        if kind == SPARSE:
            visible = closed_entries(query, rate=3)
            scored += len(visible)
            reads += len(sorted(visible, key=lambda entry: entry * 31 % 17)[:2])
        elif kind == HEAVY:
            reads += len(closed_entries(query, rate=8))
    exact = by_kind(v4_of(kind), tokens, "exact")
    assert exact["attention"] == 3 * 4 * (2 * 6 + 2 * 6) * reads
    assert exact.get("index_scores", 0) == 3 * 2 * 10 * scored

    entries = {WINDOWED: 0, SPARSE: min(tokens // 3, 2), HEAVY: tokens // 8}[kind]
    dense = by_kind(v4_of(kind), tokens, "standard")
    assert dense["attention"] == 3 * 4 * (2 * 6 + 2 * 6) * tokens * (min(tokens, 5) + entries)
    assert dense.get("index_scores", 0) == (3 * 2 * 10 * tokens * (tokens // 3) if kind == SPARSE else 0)


def test_mixing_the_residual_streams_counts_where_matrix_work_is_counted_exactly() -> None:
    """Twice a layer a 4 x 4 map meets 4 vectors of 4096: 2 * 2 * 16 * 4096 FLOPs forward."""
    assert by_kind(V4_FLASH, 1, "exact")["stream_mix"] == 3 * 43 * 2 * 2 * 16 * 4096
    assert by_kind(V4_FLASH, 1, "standard")["stream_mix"] == 0


def test_v4_s_older_keys_say_rates_and_types() -> None:
    older = V4 | {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0], "compress_rates": None}
    tree = describe(older | {"compress_rate_csa": 5, "compress_rate_hca": 9, "num_hash_layers": 1})
    rates = {name: shape for name, shape in tree.parameters() if name.endswith("compressor.position_bias")}
    assert rates == {
        "model.layers.1.self_attn.compressor.position_bias": (5, 12),
        "model.layers.2.self_attn.compressor.position_bias": (9, 6),
    }


# --- recurrences ---------------------------------------------------------------------------------


def kimi_delta_multiply_adds(tokens: int, heads: int, key_dim: int, value_dim: int) -> int:
    """`recurrent_kimi_delta_attention` of the modelling code, loop by loop.

    state = state * exp(g)       scales it: no sum is formed, as for every decay
    kv_mem = (state * k).sum()   reads what the key holds
    delta = (v - kv_mem) * beta  elementwise on a vector
    state = state + k (x) delta  corrects it
    out = (state * q).sum()      reads it for the query
    """
    count = 0
    for _ in range(tokens * heads):
        for _ in range(key_dim):
            for _ in range(value_dim):
                count += 1  # kv_mem[v] += state[k][v] * k[k]
                count += 1  # state[k][v] += k[k] * delta[v]
                count += 1  # out[v] += state[k][v] * q[k]
    return count


def test_kimi_delta_attention_costs_three_multiply_adds_per_number_of_the_state() -> None:
    config = {
        "model_type": "kimi_linear",
        **TINY,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "linear_attention"],
        "linear_attn_config": {"head_dim": 4, "num_heads": 3, "short_conv_kernel_size": 2},
    }
    for tokens in (1, 11):
        forward = 2 * 2 * kimi_delta_multiply_adds(tokens, heads=3, key_dim=4, value_dim=4)
        assert by_kind(config, tokens, "standard", "forward")["delta_rule"] == forward
        assert by_kind(config, tokens, "exact")["delta_rule"] == 3 * forward
    assert "attention" not in by_kind(config, 11, "exact")


def lightning_multiply_adds(tokens: int, heads: int, dim: int) -> int:
    """The token by token branch of `MiniMaxLightningAttention.forward`, loop by loop: the state
    decays and takes in k (x) v, then the query reads it. Its blocks over a prompt compute the same."""
    count = 0
    for _ in range(tokens * heads):
        for _ in range(dim):
            for _ in range(dim):
                count += 1  # state[k][v] = ratio * state[k][v] + k[k] * v[v]
                count += 1  # out[v] += q[k] * state[k][v]
    return count


def test_lightning_attention_costs_two_multiply_adds_per_number_of_the_state() -> None:
    config = {
        "model_type": "minimax",
        **TINY,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    }
    for tokens in (1, 11):
        forward = 2 * 2 * lightning_multiply_adds(tokens, heads=4, dim=6)
        assert by_kind(config, tokens, "standard", "forward")["linear_attention"] == forward
        assert by_kind(config, tokens, "exact")["linear_attention"] == 3 * forward
        assert by_kind(config, tokens, "standard")["attention"] == 3 * 4 * (2 * 6 + 2 * 6) * tokens**2


# --- reading configs -----------------------------------------------------------------------------


def test_kimi_linear_counts_the_layers_of_its_nested_lists_from_one() -> None:
    nested = {"head_dim": 4, "num_heads": 3, "full_attn_layers": [2, 5], "kda_layers": [1, 3, 4]}
    config = {"model_type": "kimi_linear", **TINY, "num_hidden_layers": 5, "linear_attn_config": nested}
    latent = [name for name, _ in describe(config).parameters() if name.endswith("kv_b_proj.weight")]
    assert [name.split(".")[2] for name in latent] == ["1", "4"]


def test_mimo_s_window_counts_the_query_s_own_key_besides_those_before_it() -> None:
    config = {
        "model_type": "mimo_v2_flash",
        **TINY,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 9,
        "sliding_window_size": 2,  # the reference implementation's key, which wins
    }
    full, windowed = 1 + 2 + 3 + 4, 1 + 2 + 3 + 3
    assert by_kind(config, 4, "exact")["attention"] == 3 * 4 * (2 * 192 + 2 * 128) * (full + windowed)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"model_type": "deepseek_v2"}, "num_experts_per_tok: found None"),
        ({"model_type": "deepseek_v3", "num_experts_per_tok": 257}, "num_experts_per_tok: found 257"),
        ({"model_type": "deepseek_v3", "first_k_dense_replace": None}, "first_k_dense_replace: found None"),
        ({"model_type": "deepseek_v32", "q_lora_rank": None}, "q_lora_rank: found None"),
        ({"model_type": "deepseek_v32", "layer_types": ["full_attention"] * 61}, "layer_types: found 'full_attention'"),
        (DSA | {"mlp_layer_types": ["dense"]}, "mlp_layer_types: found 1 entries, expected num_hidden_layers = 6"),
        (DSA | {"indexer_types": ["shared", *["full"] * 5]}, "indexer_types[0]: found 'shared', expected 'full'"),
        (DSA | {"indexer_types": None, "index_topk_pattern": "FSXSSS"}, "indexer_types: found 'X'"),
        (V4 | {"compress_ratios": [0, 7]}, "compress_ratios: found 7, expected one of 0, 4, 128"),
        (v4_of(HEAVY) | {"compress_rates": {SPARSE: 4}}, f"compress_rates: found no '{HEAVY}'"),
        (v4_of("full_attention"), "layer_types: found 'full_attention'"),
        (V4 | {"o_groups": 7}, "num_attention_heads * head_dim: found 24, expected a multiple of o_groups = 7"),
        (
            {"model_type": "kimi_linear", "linear_attn_config": {"full_attn_layers": [1], "kda_layers": [1]}},
            "linear_attn_config: found full_attn_layers [1]",
        ),
        ({"model_type": "kimi_linear", "mla_use_output_gate": True}, "mla_use_output_gate: found True"),
        ({"model_type": "minimax", "layer_types": ["moe"] * 32}, "layer_types: found 'moe', expected one of full_"),
        ({"model_type": "hy_v3", "num_experts": None}, "num_experts: found None"),
        ({"model_type": "mimo_v2_flash", "num_key_value_heads": 64}, "expected a multiple of 2 * num_key_value_heads"),
    ],
)
def test_a_contradiction_names_its_field(config: dict[str, Any], names: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        describe(config)
    assert names in str(raised.value)


class Composite(Multimodal):
    text_config: DeepseekV3Config = Field(default_factory=DeepseekV3Config)


def test_a_text_config_of_these_types_reads_inside_a_larger_one() -> None:
    text = {**TINY, **LATENT, "num_local_experts": 16, "num_hidden_layers": 4}
    whole = Composite.read("outer", {"text_config": text})
    alone = FlopCounter({"model_type": "deepseek_v3", **text})
    assert FlopCounter(deepseek_v3(whole.text_config))([65]) == alone([65])
    default = Composite.read("outer", {"text_config": None}).text_config
    assert deepseek_v3(default).num_matmul_params() == 36_624_596_992
    with pytest.raises(InvalidConfig, match="num_experts_per_tok: found 8, expected at most the number of experts, 4"):
        Composite.read("outer", {"text_config": text | {"num_local_experts": 4}})
