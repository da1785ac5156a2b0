"""peft is the judge: for one LoraConfig, our adapters are those that peft puts on the model built by
transformers on meta, and what peft refuses is a named error here."""

from __future__ import annotations

import copy
import re
import warnings
from collections import Counter
from functools import cache
from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidOption, Lora, Training, describe
from flopcalc.lora_defaults import DEFAULT_TARGETS, FUSED, MAMBA_TYPES
from flopcalc.training import Plan, plan
from flopcalc.verify import build_real_model

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "num_key_value_heads": 4,
}  # fmt: skip

MODELS: dict[str, dict[str, Any]] = {
    "llama": SMALL | {"model_type": "llama", "num_hidden_layers": 3, "vocab_size": 128},
    "qwen2, tied, biases": SMALL | {
        "model_type": "qwen2", "num_hidden_layers": 12, "vocab_size": 128, "tie_word_embeddings": True,
    },
    "phi3, fused": SMALL | {"model_type": "phi3", "num_hidden_layers": 2, "vocab_size": 128, "pad_token_id": 0},
    "qwen3_moe": SMALL | EXPERTS | {
        "model_type": "qwen3_moe", "num_hidden_layers": 3, "vocab_size": 128, "num_experts": 4, "mlp_only_layers": [1],
    },
    "qwen2_moe, shared": SMALL | EXPERTS | {
        "model_type": "qwen2_moe", "num_hidden_layers": 2, "vocab_size": 128, "num_experts": 4,
        "shared_expert_intermediate_size": 48,
    },
    "mixtral": SMALL | {"model_type": "mixtral", "num_hidden_layers": 2, "vocab_size": 128, "num_local_experts": 4},
    "deepseek_v3, latent": SMALL | EXPERTS | LATENT | {
        "model_type": "deepseek_v3", "num_hidden_layers": 3, "vocab_size": 128, "n_routed_experts": 8, "n_group": 2,
        "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
    },
    "gpt_oss": SMALL | {
        "model_type": "gpt_oss", "num_hidden_layers": 2, "vocab_size": 128, "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "qwen3_next, hybrid": SMALL | EXPERTS | {
        "model_type": "qwen3_next", "num_hidden_layers": 4, "vocab_size": 128, "num_experts": 4,
        "shared_expert_intermediate_size": 48, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    },
    "granitemoe": SMALL | {
        "model_type": "granitemoe", "num_hidden_layers": 2, "vocab_size": 128, "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "qwen2_vl, tower": {
        "model_type": "qwen2_vl",
        "text_config": SMALL | {"num_hidden_layers": 2, "vocab_size": 128},
        "vision_config": {
            "depth": 2, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2, "patch_size": 4, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "in_channels": 3, "num_heads": 2,
        },
    },
    "mamba2": {
        "model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128, "num_heads": 8,
        "head_dim": 16, "state_size": 16, "n_groups": 1,
    },
    "nemotron_h": SMALL | {
        "model_type": "nemotron_h", "vocab_size": 128,
        "layers_block_type": ["linear_attention", "full_attention", "moe"],
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16,
        "n_groups": 2,
    },
}  # fmt: skip

TARGETS: dict[str, dict[str, Any]] = {
    "one suffix": {"target_modules": ["q_proj"]},
    "suffixes": {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "absent_proj"], "r": 3},
    "longer suffixes": {"target_modules": ["self_attn.q_proj", "0.self_attn.v_proj"]},
    "whole names": {"target_modules": ["model.layers.1.self_attn.q_proj", "model.layers.0.self_attn.o_proj"]},
    "MLP": {"target_modules": ["gate_proj", "up_proj", "down_proj"]},
    "one of two layers": {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": 1},
    "some layers": {"target_modules": ["q_proj"], "layers_to_transform": [0, 1, 7], "layers_pattern": "layers"},
    "whole name, other layer": {
        "target_modules": ["model.layers.0.self_attn.q_proj", "v_proj"], "layers_to_transform": [1],
    },
    "regex": {"target_modules": r".*\.[01]\.(self_attn\.[qk]_proj|mlp.*down_proj)"},
    "regex of old names": {"target_modules": r".*\.(q|gate|up|down)_proj"},
    "all-linear": {"target_modules": "all-linear"},
    "all-linear but some": {"target_modules": "all-linear", "exclude_modules": ["o_proj", "down_proj"]},
    "excluded by regex": {"target_modules": ["q_proj", "o_proj"], "exclude_modules": r".*\.0\..*"},
    "ranks": {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"v_proj": 2, r"layers\.0.*q_proj": 16}},
    "embedding and head": {"target_modules": ["embed_tokens", "lm_head", "q_proj"]},
    "fused experts": {"target_modules": [], "target_parameters": ["experts.gate_up_proj", "mlp.experts.down_proj"]},
    "fused experts and attention": {
        "target_modules": ["q_proj"], "target_parameters": ["experts.down_proj"], "rank_pattern": {"down_proj": 2},
    },
    "a router": {"target_modules": ["q_proj"], "target_parameters": ["gate.weight", "router.weight", "layer.weight"]},
    "saved head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "saved embedding": {"target_modules": ["v_proj"], "modules_to_save": ["embed_tokens", "norm"]},
    "saved over targets": {"target_modules": ["q_proj", "o_proj"], "modules_to_save": ["o_proj"]},
    "all biases": {"target_modules": ["q_proj"], "bias": "all"},
    "biases of adapted modules": {"target_modules": ["q_proj", "o_proj"], "bias": "lora_only"},
    "biases of B": {"target_modules": ["q_proj"], "lora_bias": True},
    "dora": {"target_modules": ["q_proj", "o_proj"], "use_dora": True},
    "default": {},
    "tower and its patches": {"target_modules": ["visual.patch_embed.proj", "qkv", "merger.mlp.0"]},
    "language model by regex": {"target_modules": r".*language_model.*\.(q|v)_proj"},
    "tower left out": {"target_modules": "all-linear", "exclude_modules": r".*visual.*"},
    "mamba": {"target_modules": ["in_proj"]},
    "mamba, refused": {"target_modules": ["in_proj", "out_proj"]},
    "a list": {"target_modules": ["self_attn"]},
    "a norm": {"target_modules": ["norm"]},
    "absent": {"target_modules": ["absent_proj"]},
    "absent layer": {"target_modules": ["q_proj"], "layers_to_transform": [99]},
    "one of gate and up": {"target_modules": ["q_proj", "gate_proj"]},
    "router by its old name": {"target_modules": ["gate"]},
    "mixtral's old names": {"target_modules": ["w1", "w2", "w3"]},
    "a module and its parameter": {"target_modules": ["q_proj"], "target_parameters": ["q_proj.weight"]},
    "a bias": {"target_modules": ["o_proj"], "target_parameters": ["q_proj.bias"]},
}  # fmt: skip
"""Ways to target. Where a model has no such module, or peft refuses it, both sides must refuse."""

WARNED = re.compile("no module was matched|no parameter was matched|no modules were excluded")
RANKS_WARNED = re.compile("rank_pattern keys did not match")  # peft looks for them among modules alone


@cache
def real_model(name: str) -> Any:
    fields = dict(MODELS[name])
    return build_real_model(fields.pop("model_type"), fields)


def peft_adapters(name: str, options: dict[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """Name and shape of what learns, or None where peft refuses the config or warns that a part of
    it matches nothing."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = get_peft_model(copy.deepcopy(real_model(name)), LoraConfig(**options))
        except ValueError:
            return None
    said = [str(warning.message) for warning in caught]
    if any(map(WARNED.search, said)) and not moved(name, options):
        return None
    if "target_parameters" not in options and "rank_pattern" in options and any(map(RANKS_WARNED.search, said)):
        return None
    names = [name for name, _ in real_model(name).named_modules()]
    if not all(any(name.endswith(saved) for name in names) for saved in options.get("modules_to_save", ())):
        return None  # silent there, an error here
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters() if tensor.requires_grad}


def moved(name: str, options: dict[str, Any]) -> bool:
    """Whether target modules became target parameters, so that no module is left to be matched."""
    return set(options.get("target_modules", ())) <= FUSED.get(MODELS[name]["model_type"], {}).keys()


def our_plan(name: str, training: Training) -> Plan | None:
    try:
        return plan(describe(MODELS[name]), training)
    except InvalidOption:
        return None


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_adapters_are_those_of_peft(model: str, targets: str) -> None:
    options = {"r": 4, **TARGETS[targets]}
    theirs, ours = peft_adapters(model, options), our_plan(model, Training(lora=Lora(**options)))
    assert (theirs is None) == (ours is None), (theirs, ours)
    if theirs is None or ours is None:
        return
    assert ours.num_trainable_params == sum(map(size, theirs.values()))
    placed = {f"{path}.{t.name}": t.shape for path, adapter in ours.adapters.items() for t in adapter.tensors}
    lora = {short(name): shape for name, shape in theirs.items() if "lora_" in name}
    assert Counter(placed.values()) == Counter(lora.values())
    assert ours.num_adapter_params == sum(map(size, lora.values()))
    if "target_parameters" not in options and not any(".experts." in name or ".gate." in name for name in placed):
        assert placed == lora


def size(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def short(name: str) -> str:
    """A name without what peft adds to it when it wraps the model."""
    return name.removeprefix("base_model.model.").replace(".default", "").replace("vector.weight", "vector")


def test_every_way_of_targeting_is_accepted_by_some_model() -> None:
    refused = {"a list", "a norm", "absent", "absent layer", "a module and its parameter", "a bias"}
    accepted = {
        targets
        for targets, options in TARGETS.items()
        if any(our_plan(model, Training(lora=Lora(**{"r": 4, **options}))) is not None for model in MODELS)
    }
    assert accepted == set(TARGETS) - refused


def test_a_live_config_means_the_same_as_our_own() -> None:
    from peft import LoraConfig, get_peft_model

    options: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "gate_proj", "up_proj"], "lora_alpha": 8}
    config = LoraConfig(**options)
    ours = plan(describe(MODELS["qwen3_moe"]), Training(lora=Lora(**options)))
    assert plan(describe(MODELS["qwen3_moe"]), Training(lora=config)) == ours
    get_peft_model(copy.deepcopy(real_model("qwen3_moe")), config)  # renames the targets of the live config
    assert config.target_parameters
    assert plan(describe(MODELS["qwen3_moe"]), Training(lora=config.to_dict())) == ours
    assert plan(describe(MODELS["qwen3_moe"]), Training(lora=config)) == ours


def test_what_is_known_of_single_types_is_what_peft_knows() -> None:
    from peft.tuners.tuners_utils import _check_lora_target_modules_mamba as check
    from peft.utils import transformers_weight_conversion as conversion
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULTS

    for model_type, targets in DEFAULT_TARGETS.items():
        assert targets == (DEFAULTS[model_type] if isinstance(targets, str) else tuple(DEFAULTS[model_type]))
    moved = {
        model_type: conversion._MOE_TARGET_MODULE_MAPPING[base]
        for model_type, base in conversion._MODEL_TO_CONVERSION_PATTERN.items()
        if base in conversion._MOE_TARGET_MODULE_MAPPING and model_type.islower()
    }
    assert moved == FUSED
    assert set(re.findall(r"\w+", str(check.__code__.co_consts))) >= MAMBA_TYPES


def test_a_variant_that_runs_other_work_is_refused_by_name() -> None:
    from peft import LoraConfig

    config = LoraConfig(target_modules=["embed_tokens", "lm_head"], ensure_weight_tying=True)
    with pytest.raises(InvalidOption, match=r"LoraConfig\.ensure_weight_tying: found True"):
        Training(lora=config)


def test_another_method_than_lora_is_refused_by_name() -> None:
    from peft import AdaLoraConfig, IA3Config

    with pytest.raises(InvalidOption, match="peft_type: found 'ADALORA', expected 'LORA'"):
        Training(lora=AdaLoraConfig(target_modules=["q_proj"], total_step=10))
    with pytest.raises(InvalidOption, match="peft_type: found 'IA3'"):
        Training(lora=IA3Config(target_modules=["q_proj"], feedforward_modules=[]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"r": 0}, "Lora.r: found 0"),
        ({"target_module": ["q_proj"]}, "Lora.target_module: found"),
        ({"target_modules": "("}, "target_modules: found '\\(', which is no regular expression"),
        ({"target_modules": "q_proj", "layers_to_transform": 1}, "go with a list of target_modules"),
        ({"target_modules": ["q_proj"], "layers_pattern": "layers"}, "layers_pattern needs layers_to_transform"),
        ({"target_modules": ["q_proj"], "bias": "some"}, "Lora.bias: found 'some'"),
        (
            {"target_modules": ["nope"]},
            "Lora.target_modules: found .*nope.* which matches nothing; expected names such",
        ),
        ({"target_modules": ["q_proj"], "target_parameters": ["nope"]}, "Lora.target_parameters: found .*nope"),
        ({"target_modules": ["q_proj"], "exclude_modules": ["nope"]}, "Lora.exclude_modules: found .*nope"),
        ({"target_modules": ["q_proj"], "modules_to_save": ["nope"]}, "Lora.modules_to_save: found 'nope'"),
        ({"target_modules": ["q_proj"], "rank_pattern": {"nope": 1}}, "Lora.rank_pattern: found 'nope'"),
        ({"target_modules": ["input_layernorm"]}, "input_layernorm is matched .* a Norm takes no such adapter"),
        ({"target_modules": ["q_proj"], "target_parameters": ["q_proj.weight"]}, "expected one of the two"),
        ({"target_modules": []}, "neither target_modules nor target_parameters"),
    ],
)
def test_what_is_wrong_with_a_lora_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        plan(describe(MODELS["llama"]), Training(lora=Lora(**options)))


def test_adapters_are_work_of_their_own_under_the_names_of_peft() -> None:
    """q_proj 64 -> 64 at rank 4 in 3 layers, 10 tokens: A and B hold 256 weights each, 6 FLOPs each."""
    training = Training(lora=Lora(r=4, target_modules=("q_proj",)))
    breakdown = FlopCounter(MODELS["llama"], training=training).breakdown([10])
    assert breakdown.by_kind()["adapter"] == 3 * 2 * 256 * 6 * 10
    rows = {path: flops for path, kind, flops in breakdown.rows if kind == "adapter"}
    assert rows["model.layers.0.self_attn.q_proj.lora_A.weight"] == 256 * 6 * 10
    assert rows["model.layers.2.self_attn.q_proj.lora_B.weight"] == 256 * 6 * 10
