"""Molmo, which transformers does not know: published totals, the parameter counts of an independent
implementation (`molmo` of MLX-VLM 0.7.10), and the work of one crop by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, describe

MOLMO_7B_D = {
    "model_type": "molmo", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 37888,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "qkv_bias": True,
}  # fmt: skip
MOLMO_7B_O = {
    "model_type": "molmo", "vocab_size": 100278, "embedding_size": 100352, "hidden_size": 4096,
    "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "attention_layer_norm": True,
    "norm_after": True,
}  # fmt: skip
MOLMO_72B = MOLMO_7B_D | {
    "hidden_size": 8192, "intermediate_size": 59136, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8,
}  # fmt: skip


def tiny(hidden: int, heads: int, kv_heads: int, layers: int, inner: int, words: int) -> dict[str, Any]:
    return {
        "model_type": "molmo", "vocab_size": words, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "qkv_bias": True,
    }  # fmt: skip


@pytest.mark.parametrize(("config", "billions"), [(MOLMO_7B_D, 8.02), (MOLMO_7B_O, 7.67), (MOLMO_72B, 73.3)])
def test_released_models_have_their_published_totals(config: dict[str, Any], billions: float) -> None:
    assert f"{describe(config).num_params() / 1e9:.3g}" == f"{billions:g}"


@pytest.mark.parametrize(
    ("config", "elsewhere"), [(tiny(64, 4, 2, 3, 96, 100), 298_445_120), (tiny(32, 2, 2, 1, 48, 60), 298_321_856)]
)
def test_altered_models_have_as_many_parameters_as_elsewhere(config: dict[str, Any], elsewhere: int) -> None:
    assert describe(config).num_params() == elsewhere


def test_a_crop_makes_a_token_of_four_patches() -> None:
    """576 patches and a class token go through 23 layers, of which the language model reads the 15th and
    the 22nd; 144 queries of four keys each, of both layers side by side, make as many tokens."""
    config = tiny(64, 4, 2, 3, 96, 100)
    tokens, layer, core = 577, 4 * 1024**2 + 2 * 1024 * 4096, 2 * 16 * (64 + 64)
    work = FlopCounter(config, "matmul-dense", "forward").breakdown([], images=[576]).by_module()
    tower, vision = "model.vision_backbone.image_vit", "model.vision_backbone"
    assert work[f"{tower}.patch_embedding"] == 2 * 576 * 588 * 1024
    assert work[f"{tower}.transformer"] == 23 * (2 * tokens * layer + core * tokens**2)
    query_and_out, key_and_value = 2 * 144 * (2048 + 1024) * 1024, 2 * 576 * 2 * 2048 * 1024
    assert work[f"{vision}.image_pooling_2d"] == query_and_out + key_and_value + core * 144 * 4
    assert work[f"{vision}.image_projector"] == 2 * 144 * (2 * 1024 * 48 + 48 * 64)
    trained = FlopCounter(config, "matmul-dense").breakdown([], images=[576]).by_module()
    last, read = (f"{tower}.transformer.resblocks.{i}" for i in (22, 21))
    assert (trained[last], trained[read]) == (work[last], 3 * work[read]), "nothing reads the last layer"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layer_norm_type": "default"}, "layer_norm_type"),
        ({"weight_tying": True}, "weight_tying"),
        ({"intermediate_size": 97}, "intermediate_size: found 97"),
        ({"num_attention_heads": 5}, "hidden_size"),
    ],
)
def test_what_is_not_known_of_it_is_a_named_error(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(tiny(64, 4, 2, 3, 96, 100) | change)
    with pytest.raises(InvalidConfig, match="hidden_size"):
        describe({"model_type": "molmo"})
