"""Where a framework prints a number that is not that of its rule: model types that its counter does not
know, and fields of a config that it reads wrongly. `docs/conventions.md` has the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["PRINTED", "Printed", "printed_otherwise"]


class Printed(NamedTuple):
    """What the counter of a framework does by model type. `known` are the types that it has a rule
    for (None: it asks no type), `unknown` is what it does with others; `faults` are its readings of
    single types, `always` one of all."""

    known: frozenset[str] | None = None
    unknown: str = ""
    faults: Mapping[str, str] = MappingProxyType({})
    always: str = ""


def printed_otherwise(convention: str, model_type: str) -> str | None:
    """What the framework of that name itself does with a type, where that is not the rule."""
    printed = PRINTED.get(convention, Printed())
    if printed.known is not None and model_type not in printed.known:
        return printed.unknown
    return printed.faults.get(model_type) or printed.always or None


HEAD_DIM = "takes hidden_size // num_attention_heads, not the config's own head_dim, as the head dim"
LINEAR_AS_FULL = "counts layers of linear attention as full attention"
TWO_MATRICES = "counts two matrices for the three of the MLP"
ALL_SPARSE = "counts layers of mlp_only_layers as sparse"
NO_HEAD_DIM = "stops with an error, the config having no head_dim"

DELTA_TYPES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
SHARED_TYPES = ("deepseek_v2", "deepseek_v3", "glm4_moe", "glm_moe_dsa", "qwen2_moe")


def _all(names: Iterable[str], words: str) -> dict[str, str]:
    return dict.fromkeys(names, words)


PRINTED: Mapping[str, Printed] = {
    "prime_rl_2026_08": Printed(
        faults={
            **_all(SHARED_TYPES, "reads shared experts from num_shared_experts alone, and so finds none"),
            **_all(DELTA_TYPES, LINEAR_AS_FULL),
            "mixtral": NO_HEAD_DIM,
            "llama4_text": "finds no number of experts, and counts no MLP at all",
        },
        always=f"{HEAD_DIM} of the core, and the packed row as one document",
    ),
    "verl": Printed(
        known=frozenset({
            "llama", "qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe",
            "qwen3_5", "qwen3_5_moe", "deepseek_v3", "mistral", "gemma3_text", "gpt_oss", "apertus", "seed_oss",
            "hy_v3", "mimo", "glm4v", "minicpmv", "minicpmo",
        }),
        unknown="prints 0 for a type that it does not know",
        faults={
            "qwen2_moe": "leaves out the shared expert",
            "qwen2_vl": f"{HEAD_DIM}, and stops with an error where images are given",
            "qwen2_5_vl": f"{HEAD_DIM}, and counts the tower as that of Qwen3-VL",
            "qwen3_vl": HEAD_DIM,
            "glm4v": "stops with an error where images are given",
            "qwen3_moe": ALL_SPARSE,
            "hy_v3": "counts the dense first layer as sparse",
        },
    ),
    "veomni": Printed(
        known=frozenset({
            "llama", "seed_oss", "qwen2", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe",
            "gpt_oss", "deepseek_v3", "deepseek_v4", *DELTA_TYPES,
        }),
        unknown="prints 0 for a type that it does not know",
        faults={"llama": HEAD_DIM, "seed_oss": HEAD_DIM},
    ),
    "automodel": Printed(
        known=frozenset({
            "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "nemotron", "mixtral", "qwen2", "qwen3", "qwen3_moe",
            "qwen3_vl", "qwen3_vl_moe", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "minimax_m2",
            "deepseek_v3", "kimi_k2", "kimi_k25", "mistral3", "longcat_flash", "qwen3_5", "qwen3_5_moe", "qwen3_next",
            "gpt_oss", "step3p5", "nemotron_h", "bert", "roberta", "albert", "electra",
        }),
        unknown="prints a dense estimate without gates and head_dim for a type that it does not know",
        faults={
            "llama": HEAD_DIM,
            "nemotron": HEAD_DIM,
            "nemotron_h": f"{HEAD_DIM}, and three matrices for the two of an MLP",
            "deepseek_v3": "takes one shared expert whatever n_shared_experts, and every layer as sparse where "
            "moe_layer_freq is a number",
            "glm_moe_dsa": "counts an indexer in every layer",
            "mistral3": "prints nothing for a model without latent attention",
        },
    ),
    "nemo_rl": Printed(
        known=frozenset({"llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3"}),
        unknown="raises a ValueError for a type that it does not know, and prints nothing",
        faults={
            "llama": HEAD_DIM,
            "qwen2": "takes keys and values as wide as queries",
            "qwen3_moe": "counts one expert of intermediate_size for the active ones",
            "deepseek_v3": "counts every layer as sparse, with one shared expert",
        },
    ),
    "slime": Printed(always="takes the output projection of attention as hidden_size x hidden_size"),
    "levanter": Printed(
        faults={
            "mistral": f"{TWO_MATRICES}, and keys and values as wide as queries",
            **_all(("gemma", "gemma2", "gemma3_text"), TWO_MATRICES),
        },
        always=HEAD_DIM,
    ),
    "olmo_core": Printed(
        faults=_all(DELTA_TYPES, "counts layers of the delta rule forward only (`as_printed` does so too)")
    ),
    "trl": Printed(
        faults={
            **_all(("qwen2", "phi3", "smollm3", "gpt2", "mixtral"), NO_HEAD_DIM),
            **_all(DELTA_TYPES, LINEAR_AS_FULL),
            "qwen3_moe": ALL_SPARSE,
        }
    ),
}  # fmt: skip
"""By name of the convention."""
