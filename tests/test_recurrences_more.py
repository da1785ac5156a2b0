"""Recurrences without a matrix product, or with one that the operator counter cannot judge, and models
whose layers share, skip or route: values added up by hand. The states are written here as products,
shown to compute what the modelling code computes, and counted by torch's operator counter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.mamba.modeling_mamba import mamba_selective_scan
from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention_cpu
from transformers.models.xlstm.modeling_xlstm import mlstm_recurrent_step_native

from flopcalc import CONVENTIONS, FlopCounter, InvalidConfig, describe

TOKENS = 5

MAMBA = {"model_type": "mamba", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 6}
RWKV4 = {"model_type": "rwkv", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1}
RWKV5 = {"model_type": "rwkv5", "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 1, "head_size": 16}
XLSTM = {"model_type": "xlstm", "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 1, "num_heads": 2}
GRIFFIN = {
    "model_type": "recurrent_gemma",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
CONV = {
    "model_type": "lfm2",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["conv"],
}


def counted(run: Any, *inputs: Any) -> tuple[Any, int]:
    with FlopCounterMode(display=False) as counter:
        output = run(*inputs)
    return output, counter.get_total_flops()


def of_kind(config: dict[str, Any], kind: str, convention: str = "standard", phase: Any = "forward") -> int:
    return FlopCounter(config, convention, phase).breakdown([TOKENS]).by_kind()[kind]


def mamba_as_products(x: Any, step: Any, a: Any, b: Any, c: Any) -> Any:
    """The Mamba scan, (channels, tokens) in, token by token: a channel's state is its own, so that each
    takes one outer product and one read-out of `state` numbers."""
    state = torch.zeros(len(x), 1, b.shape[-1])
    outputs = []
    for t in range(x.shape[1]):
        driven = (step[:, t] * x[:, t])[:, None, None] @ b[t].expand(len(x), 1, -1)
        state = state * (step[:, t, None] * a)[:, None].exp() + driven
        outputs.append((state @ c[t].expand(len(x), -1)[..., None])[:, 0])
    return torch.cat(outputs, dim=1)


def test_mamba_is_two_products_with_the_state_of_each_channel() -> None:
    torch.manual_seed(0)
    channels, state = 32, 6
    x, step = torch.randn(channels, TOKENS), torch.rand(channels, TOKENS)
    a, b, c = -torch.rand(channels, state), torch.randn(TOKENS, state), torch.randn(TOKENS, state)
    real = mamba_selective_scan(x[None], step[None], a, b.T[None], c.T[None])
    ours, flops = counted(mamba_as_products, x, step, a, b, c)
    torch.testing.assert_close(ours, real[0], atol=1e-5, rtol=1e-5)
    # 2 products of 2 * 6 FLOPs, 32 channels, 5 tokens
    assert flops == 3_840 == of_kind(MAMBA, "mamba")
    assert of_kind(MAMBA, "mamba", phase="train") == 11_520


def mlstm_as_products(q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    """One head of mLSTM, (tokens, dim) in, without the normaliser: add k (x) v, read with the query."""
    state, largest = torch.zeros(q.shape[1], v.shape[1]), torch.zeros(())
    outputs = []
    for t in range(len(q)):
        decay = torch.nn.functional.logsigmoid(f[t])
        new = torch.maximum(decay + largest, i[t])
        state = (decay + largest - new).exp() * state + (i[t] - new).exp() * (k[t, :, None] @ v[t, None])
        largest = new
        outputs.append((q[t] * q.shape[1] ** -0.5)[None] @ state)
    return torch.cat(outputs)


def test_mlstm_is_two_products_with_the_state_of_each_head() -> None:
    torch.manual_seed(0)
    key, value = 16, 32  # of a head of XLSTM: 64 * 0.5 / 2 and 64 / 2
    q, k = torch.randn(2, TOKENS, key)
    v, i, f = torch.randn(TOKENS, value), torch.randn(TOKENS), torch.randn(TOKENS)
    ours, flops = counted(mlstm_as_products, q, k, v, i, f)
    states = torch.zeros(1, 1, key, value), torch.zeros(1, 1, key), torch.zeros(1, 1, 1)
    for t in range(TOKENS):
        gates = i[t].view(1, 1, 1), f[t].view(1, 1, 1)
        _, states = mlstm_recurrent_step_native(
            q[t].view(1, 1, -1), k[t].view(1, 1, -1), v[t].view(1, 1, -1), *gates, *states, dtype_state=torch.float32
        )
    last = (q[-1] * key**-0.5) @ states[0][0, 0]  # what the model's own state holds under the last query
    torch.testing.assert_close(ours[-1], last, atol=1e-5, rtol=1e-5)
    # 2 products of 2 * 16 * 32 FLOPs, 5 tokens, and 2 heads
    assert 2 * flops == 20_480 == of_kind(XLSTM, "linear_attention")


def test_rwkv_4_multiplies_no_matrices_with_its_state() -> None:
    key, value = torch.randn(2, 1, TOKENS, 16)
    _, flops = counted(rwkv_linear_attention_cpu, torch.rand(16), torch.rand(16), key, value)
    assert flops == 0
    # key, value, receptance and output 4 * 16 x 16, then 16 x 64 twice and 16 x 16, and the head 16 x 32
    assert describe(RWKV4).num_matmul_params() == 1_024 + 2_048 + 256 + 512
    # and vectors: 5 mixes of 16, decay and bonus 16 each, 4 norms (one of the embedding) of weight and bias
    assert describe(RWKV4).num_active_params() == 3_840 + 80 + 32 + 128
    assert FlopCounter(RWKV4)([TOKENS]) == TOKENS * 6 * 4_080
    assert FlopCounter(RWKV4, "exact")([TOKENS]) == TOKENS * 6 * 3_840


def test_rwkv_5_keeps_a_matrix_per_head() -> None:
    # 2 products of 2 * 16 * 16 FLOPs, 4 heads, 5 tokens
    assert of_kind(RWKV5, "linear_attention") == 20_480
    # five projections 64 x 64; channel mixing 64 x 224 twice (3.5 * 64, a multiple of 32) and 64 x 64; head
    assert describe(RWKV5).num_matmul_params() == 5 * 4_096 + 2 * 14_336 + 4_096 + 2_048


def test_the_rg_lru_multiplies_its_gates_alone() -> None:
    # linear_y, linear_x and linear_out 16 x 16; two gates of 2 blocks of 8 x 8; MLP 3 * 16 x 20; head 16 x 32
    assert describe(GRIFFIN).num_matmul_params() == 768 + 256 + 960 + 512
    # and vectors: 3 biases, recurrent_param and gate biases of 16 each, 16 * (4 taps + bias), MLP biases
    # 20 + 20 + 16, norms 3 * 16
    assert describe(GRIFFIN).num_active_params() == 2_496 + 96 + 80 + 56 + 48
    assert FlopCounter(GRIFFIN)([TOKENS]) == TOKENS * 6 * 2_776
    assert FlopCounter(GRIFFIN, "exact")([TOKENS]) == TOKENS * 6 * 2_496


def test_a_short_convolution_costs_its_taps() -> None:
    # in_proj 16 x 48, out_proj 16 x 16, MLP 3 * 16 x 40, head 16 x 32
    assert describe(CONV).num_matmul_params() == 768 + 256 + 1_920 + 512
    # and 3 taps of 16 channels, norms 3 * 16
    assert FlopCounter(CONV)([TOKENS]) == TOKENS * 6 * (3_456 + 48 + 48)
    assert FlopCounter(CONV, "exact")([TOKENS]) == TOKENS * 6 * 3_456


@pytest.mark.parametrize("config", [MAMBA, RWKV4, RWKV5, XLSTM, GRIFFIN, CONV], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_recurrent_model_costs_the_same_however_its_tokens_are_cut(config: dict[str, Any], convention: str) -> None:
    counter = FlopCounter(config, convention)
    assert counter([2**33 + 7]) == counter([2**33, 7]) == counter([2**33]) + counter([7])


ZAMBA = {
    "model_type": "zamba",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"],
}


def test_a_shared_block_is_held_once_and_runs_in_each_of_its_places() -> None:
    tree = describe(ZAMBA)
    # q, k, v 32 x 32 and o 32 x 16; MLP 3 * 16 x 40; norms 32 + 16
    block = 3 * 1_024 + 512 + 1_920 + 48
    owned = [name for name, _ in tree.parameters() if "shared_transf" in name]
    assert len(owned) == 9 and all(name.startswith("model.layers.1.") for name in owned)
    untied = describe(ZAMBA | {"tie_word_embeddings": False})  # shares nothing
    assert untied.num_params() - tree.num_params() == 2 * block + 32 * 16
    assert untied.num_active_params() == tree.num_active_params()
    # heads of 2 * 16 / 2: attention 2 heads * 4 * 16 per pair, in three layers
    assert of_kind(ZAMBA, "attention") == 3 * TOKENS**2 * 128


ZAMBA2 = {
    "model_type": "zamba2",
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "n_mamba_heads": 2,
    "layers_block_type": ["hybrid"] * 4,
    "num_mem_blocks": 2,
    "adapter_rank": 3,
}


def test_a_shared_block_runs_the_adapter_of_its_place_alone() -> None:
    tree = describe(ZAMBA2)
    adapter = 16 * 3 + 3 * 2 * 64
    held = [name for name, _ in tree.parameters() if "gate_up_proj_adapter_list" in name]
    places = [(0, 0), (0, 2), (1, 1), (1, 3)]  # blocks 0 and 1 take turns
    assert held == [
        f"model.layers.{block}.shared_transformer.feed_forward.gate_up_proj_adapter_list.{place}.{half}.weight"
        for block, place in places
        for half in (0, 1)
    ]
    wider = describe(ZAMBA2 | {"adapter_rank": 4})
    assert wider.num_params() - tree.num_params() == 4 * adapter // 3
    assert (
        wider.num_matmul_params() - tree.num_matmul_params() == 4 * adapter // 3
    )  # one adapter in each of four places


LONGCAT = {
    "model_type": "longcat_flash",
    "vocab_size": 32,
    "hidden_size": 16,
    "num_layers": 1,
    "num_attention_heads": 2,
    "ffn_hidden_size": 40,
    "q_lora_rank": 8,
    "kv_lora_rank": 4,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 6,
    "moe_topk": 6,
    "n_routed_experts": 8,
    "zero_expert_num": 4,
    "expert_ffn_hidden_size": 10,
}


def test_experts_that_do_nothing_take_their_share_of_the_picks() -> None:
    # of 6 picks among 8 + 4 experts, 4 compute: 4 * 3 * 16 x 10, three passes of 2 FLOPs
    assert of_kind(LONGCAT, "experts", phase="train") == TOKENS * 6 * 1_920
    assert of_kind(LONGCAT, "router") == TOKENS * 2 * 16 * 12
    # two attentions: queries and keys of 6, values of 6, 2 heads
    assert of_kind(LONGCAT, "attention") == 2 * TOKENS**2 * 2 * (2 * 6 + 2 * 6)
    none = LONGCAT | {"zero_expert_num": 0, "moe_topk": 4}
    assert of_kind(none, "experts") == of_kind(LONGCAT, "experts")


JETMOE = {
    "model_type": "jetmoe",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "kv_channels": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 3,
}


def test_attention_experts_each_make_queries_of_all_heads() -> None:
    # per token 3 of 4 experts: queries 16 x 16 and output 16 x 16; MLP 16 x 80 and 40 x 16
    assert of_kind(JETMOE, "experts") == TOKENS * 2 * 3 * (256 + 256 + 1_280 + 640)
    assert of_kind(JETMOE, "router") == TOKENS * 2 * 2 * 16 * 4
    assert of_kind(JETMOE, "linear") == TOKENS * 2 * 16 * 32  # keys and values, once for all experts
    assert of_kind(JETMOE, "attention") == TOKENS**2 * 6 * (2 * 8 + 2 * 8)  # 3 experts * 2 heads


DBRX = {
    "model_type": "dbrx",
    "vocab_size": 32,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "attn_config": {"kv_n_heads": 1},
    "ffn_config": {"ffn_hidden_size": 10, "moe_num_experts": 4, "moe_top_k": 3},
}


def test_dbrx_layer_added_up_by_hand() -> None:
    # Wqkv 16 x (16 + 2 * 8), out_proj 16 x 16
    assert of_kind(DBRX, "linear") == TOKENS * 2 * (512 + 256)
    assert of_kind(DBRX, "experts") == TOKENS * 2 * 3 * 3 * 16 * 10
    assert of_kind(DBRX, "router") == TOKENS * 2 * 64
    assert of_kind(DBRX, "attention") == TOKENS**2 * 2 * (2 * 8 + 2 * 8)


def test_doge_experts_are_rows_of_look_up_tables() -> None:
    doge = {"model_type": "doge", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    moe = doge | {"is_moe": True, "num_experts": 64, "num_experts_per_tok": 5}
    # 5 rows of 16 in each table, and scores of 2 * 8 keys
    assert of_kind(moe, "experts") == TOKENS * 2 * 2 * 5 * 16
    assert of_kind(moe, "router") == TOKENS * 2 * 16 * 16


def test_minimax_m1_attends_where_its_list_says() -> None:
    m1 = {"model_type": "minimax_m1", "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    m1 |= {"num_hidden_layers": 3, "attn_type_list": [0, 0, 1], "intermediate_size": 20}
    assert of_kind(m1, "linear_attention") == 2 * TOKENS * 4 * 2 * 8 * 8
    assert of_kind(m1, "attention") == TOKENS**2 * 2 * (2 * 8 + 2 * 8)
    with pytest.raises(InvalidConfig, match="attn_type_list"):
        describe(m1 | {"attn_type_list": [0, 2, 1]})
