"""What peft's LoRA knows of single model types: data, no code.

From peft 0.21: `utils/constants.py` (default targets), `utils/transformers_weight_conversion.py`
(projections of experts under the names they had before transformers 5 stored them fused).
"""

from __future__ import annotations

__all__ = ["DEFAULT_TARGETS", "FUSED", "MAMBA_TYPES"]

_QV = ("q_proj", "v_proj")

DEFAULT_TARGETS: dict[str, str | tuple[str, ...]] = {
    **dict.fromkeys(("llama", "llama4", "mistral", "mixtral", "stablelm", "gemma", "gemma2", "gemma3_text"), _QV),
    **dict.fromkeys(("qwen2", "qwen3", "opt", "gptj", "gpt_neo"), _QV),
    **dict.fromkeys(("bloom", "falcon", "gpt_neox", "chatglm"), ("query_key_value",)),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra"), ("query", "value")),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn",)),
    "gemma4": r".*language_model\..*\.(q_proj|v_proj)",
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "mpt": ("Wqkv",),
    "codegen": ("qkv_proj",),
    "rwkv": ("key", "value", "receptance", "output"),
    "rwkv7": ("r_proj", "k_proj", "v_proj", "o_proj", "key", "value"),
}
"""`target_modules` of a LoraConfig that names none, by model type."""

MAMBA_TYPES = frozenset({"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"})
"""Types of which out_proj and conv1d are refused."""

_MIXTRAL = {"gate": "gate.weight", "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
_QWEN2_MOE = {
    "gate": "gate.weight",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}

FUSED: dict[str, dict[str, str]] = {
    **dict.fromkeys(("mixtral", "minimax", "minimax_m2"), _MIXTRAL),
    **dict.fromkeys(
        (
            "afmoe", "beam", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32",
            "dots1", "ernie4_5_moe", "exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe",
            "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash", "mellum", "olmoe", "qwen3_moe", "qwen3_next",
            "qwen3_omni_moe", "qwen3_omni_moe_text", "qwen3_omni_moe_thinker", "sarvam_mla", "solar_open",
        ),
        _QWEN2_MOE,
    ),
}  # fmt: skip
"""Old name -> name of today, by model type. A target of an old name becomes a target parameter."""
