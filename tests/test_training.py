"""Autograd is the judge: forward and backward products of small models on the CPU, counted by torch,
equal the passes of `exact` to the integer, whatever learns. Other tests derive integers by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from trained import build, counted, is_recurrent, learn, linear_names, seen, under

from flopcalc import FlopCounter, Training, describe
from flopcalc.lora_defaults import FUSED, MAMBA_TYPES

TOKENS = 19
SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "num_hidden_layers": 3, "vocab_size": 112, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}

MODELS: dict[str, dict[str, Any]] = {
    "llama": SMALL | {"model_type": "llama"},
    "qwen3, tied, norms on heads": SMALL | {"model_type": "qwen3", "tie_word_embeddings": True},
    "qwen2, biases, windows": SMALL | {
        "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1,
    },
    "gemma2, tied, norms around": SMALL | {"model_type": "gemma2", "sliding_window": 8},
    "phi3, fused projections": SMALL | {"model_type": "phi3"},
    "cohere2, parallel": SMALL | {"model_type": "cohere2", "sliding_window": 8},
    "gpt2, tied, transposed": {
        "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 64, "vocab_size": 112,
    },
    "gpt_neox, parallel, fused": SMALL | {"model_type": "gpt_neox"},
    "olmo2, norms after": SMALL | {"model_type": "olmo2"},
    "mixtral": SMALL | {"model_type": "mixtral", "num_local_experts": 4},
    "qwen2_moe, shared and gate": SMALL | EXPERTS | {
        "model_type": "qwen2_moe", "num_experts": 4, "shared_expert_intermediate_size": 48, "mlp_only_layers": [1],
    },
    "gpt_oss, sinks": SMALL | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3, latent, shared": SMALL | EXPERTS | {
        "model_type": "deepseek_v3", "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
        "n_shared_experts": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "num_key_value_heads": 4, "head_dim": 8,
    },
    "qwen3_next, hybrid": SMALL | EXPERTS | {
        "model_type": "qwen3_next", "num_hidden_layers": 4, "num_experts": 4, "shared_expert_intermediate_size": 48,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    },
    "falcon_h1, attention beside mamba": SMALL | {
        "model_type": "falcon_h1", "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 16,
        "mamba_n_groups": 1,
    },
}  # fmt: skip

RECURRENT = ("qwen3_next, hybrid", "falcon_h1, attention beside mamba")

ATTENTION = (
    "q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
    "c_attn", "query_key_value", "qkv_proj", "dense",
)  # fmt: skip

Prepared = tuple[Any, Training]


def everything(model: Any) -> Prepared:
    return learn(model, lambda _: True), Training()


def frozen(*patterns: str) -> Callable[[Any], Prepared]:
    def prepare(model: Any) -> Prepared:
        found = present(model, patterns)
        matches = under(*found)
        return learn(model, lambda name: not matches(name)), Training(frozen=found)

    return prepare


def only(*patterns: str) -> Callable[[Any], Prepared]:
    def prepare(model: Any) -> Prepared:
        found = present(model, patterns)
        if not found:
            pytest.skip("no such part")
        return learn(model, under(*found)), Training(trained=found)

    return prepare


def lora(choose: Callable[[set[str]], set[str]]) -> Callable[[Any], Prepared]:
    """Adapters by peft on the linear layers of the chosen names, without those that it would move to
    fused parameters (it then multiplies weights with weights) and those that it refuses."""

    def prepare(model: Any) -> Prepared:
        from peft import LoraConfig, get_peft_model

        model_type = model.config.model_type
        refused = {*FUSED.get(model_type, {}), *(("out_proj",) if model_type in MAMBA_TYPES else ())}
        names = sorted(choose(set(linear_names(model)) - refused))
        if not names:
            pytest.skip("no such layers")
        config = LoraConfig(r=4, target_modules=names)
        training = Training(lora=config)
        return get_peft_model(model, config), training

    return prepare


def one(name: str) -> Callable[[set[str]], set[str]]:
    return lambda names: names & {name}


EMBEDDING = ("*embed_tokens", "*wte", "*embed_in")


def present(model: Any, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that match something in this model."""
    names = [name for name, _ in model.named_parameters()]
    return tuple(pattern for pattern in patterns if any(map(under(pattern), names)))


WAYS: dict[str, Callable[[Any], Prepared]] = {
    "everything": everything,
    "LoRA on query and value": lora(lambda names: names & {"q_proj", "v_proj"}),
    "LoRA on attention": lora(lambda names: names & set(ATTENTION)),
    "LoRA on all linears": lora(lambda names: names),
    "embedding frozen": frozen(*EMBEDDING),
    "first layer frozen": frozen(*EMBEDDING, "*.layers.0", "*.h.0"),
    "two layers frozen": frozen(*EMBEDDING, "*.layers.[01]", "*.h.[01]"),
    "head alone": only("lm_head", "embed_out"),
}
PARTS: dict[str, Callable[[Any], Prepared]] = {
    "LoRA on query": lora(one("q_proj")),
    "LoRA on key": lora(one("k_proj")),
    "LoRA on value": lora(one("v_proj")),
    "LoRA after the core": lora(one("o_proj")),
    "LoRA on latent queries": lora(one("q_b_proj")),
    "LoRA on latent values": lora(one("kv_b_proj")),
    "norms alone": only("*norm*"),
    "MLP alone": only("*.mlp"),
    "router alone": only("*.gate.weight", "*.router"),
    "shared expert alone": only("*.shared_expert", "*.shared_experts"),
    "sinks alone": only("*.sinks"),
}
"""Single parts, whose gradients tell apart what feeds what inside a layer."""


@cache
def real_model(name: str) -> Any:
    return build(MODELS[name])


def judge(name: str, prepare: Callable[[Any], Prepared]) -> None:
    import torch

    tree = describe(MODELS[name])
    model, training = prepare(copy.deepcopy(real_model(name)))
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    found = seen(model, is_recurrent(tree), input_ids=ids)
    assert counted(tree, training, [TOKENS]) == found
    learning = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert FlopCounter(tree, training=training).num_trainable_params() == learning


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", [name for name in MODELS if name not in RECURRENT])
def test_passes_are_those_of_autograd(model: str, way: str) -> None:
    judge(model, WAYS[way])


@pytest.mark.parametrize("way", ["everything", "LoRA on all linears", "first layer frozen", "head alone"])
@pytest.mark.parametrize("model", RECURRENT)
def test_passes_of_recurrent_models_are_those_of_autograd(model: str, way: str) -> None:
    judge(model, WAYS[way])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "model",
    ["qwen3, tied, norms on heads", "cohere2, parallel", "gpt_oss, sinks", "deepseek_v3, latent, shared",
     "qwen2_moe, shared and gate"],
)  # fmt: skip
def test_passes_of_single_parts_are_those_of_autograd(model: str, part: str) -> None:
    judge(model, PARTS[part])


TEXT = SMALL | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}}
PATCHES = {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3, "num_heads": 2}
TOKEN_IDS = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8}
TOWERS: dict[str, dict[str, Any]] = {
    "qwen2_vl": TOKEN_IDS | {
        "text_config": TEXT,
        "vision_config": PATCHES | {"depth": 2, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2},
    },
    "qwen3_vl, deepstack": TOKEN_IDS | {
        "text_config": TEXT,
        "vision_config": PATCHES | {
            "depth": 3, "hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48,
            "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1],
        },
    },
}  # fmt: skip
TOWER_WAYS: dict[str, Callable[[Any], Prepared]] = {
    "everything": everything,
    "tower frozen": frozen("model.visual"),
    "tower and embedding frozen": frozen("model.visual", "*.embed_tokens"),
    "language model frozen": frozen("model.language_model", "lm_head"),
    "projector alone": only("model.visual.*merger*"),
    "patch embedding alone": only("*.patch_embed"),
    "LoRA on the language model": lora(lambda names: names & {"q_proj", "v_proj"}),
    "LoRA on tower and language model": lora(lambda names: names & {"qkv", "q_proj"}),
}


@pytest.mark.parametrize("way", TOWER_WAYS)
@pytest.mark.parametrize("model", TOWERS)
def test_passes_through_towers_are_those_of_autograd(model: str, way: str) -> None:
    """One image of 4 x 6 patches, which the merger turns into 6 of the text's tokens."""
    import torch

    fields = {"model_type": model.partition(",")[0], **TOWERS[model]}
    tree = describe(fields)
    real, training = TOWER_WAYS[way](build(fields))
    ids = torch.full((1, TOKENS), 9)
    ids[0, 3:10] = torch.tensor([7, *[5] * 6])
    pixels = torch.zeros(24, 3 * 2 * 4 * 4, dtype=torch.bfloat16)
    grid = torch.tensor([[1, 4, 6]])
    kinds = (ids == 5).long()
    found = seen(real, False, input_ids=ids, pixel_values=pixels, image_grid_thw=grid, mm_token_type_ids=kinds)
    assert counted(tree, training, [TOKENS], [(1, 4, 6)]) == found
