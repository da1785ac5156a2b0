"""Configs that nest a text config: nested as a dict or a live object, sparse, null or missing."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, describe

SMALL = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 2, "vocab_size": 640}
NESTING = ["qwen3_5", "qwen3_5_moe", "gemma3"]


def live(model_type: str, **fields: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type, **fields)


def text_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    towers = ("model.language_model.", "lm_head")
    return {name: shape for name, shape in describe(config).parameters() if name.startswith(towers)}


@pytest.mark.parametrize("model_type", NESTING)
def test_every_form_of_one_model_gives_one_tree(model_type: str) -> None:
    as_dict = text_shapes({"model_type": model_type, "text_config": SMALL})
    assert as_dict["model.language_model.embed_tokens.weight"] == (640, 128)
    assert text_shapes(live(model_type, text_config=dict(SMALL))) == as_dict
    nested = live(f"{model_type}_text", **SMALL)
    assert text_shapes({"model_type": model_type, "text_config": nested}) == as_dict


@pytest.mark.parametrize("model_type", NESTING)
def test_a_missing_or_null_text_config_is_its_class_default(model_type: str) -> None:
    missing = text_shapes({"model_type": model_type})
    assert missing == text_shapes({"model_type": model_type, "text_config": None}) == text_shapes(live(model_type))
    whole = describe({"model_type": f"{model_type}_text"})
    inner = {name.removeprefix("model.language_model."): shape for name, shape in missing.items()}
    assert inner == {name.removeprefix("model."): shape for name, shape in whole.parameters()}


@pytest.mark.parametrize("model_type", NESTING)
def test_the_outer_tie_decides(model_type: str) -> None:
    for outer in (True, False):
        config = {"model_type": model_type, "tie_word_embeddings": outer}
        text_config = SMALL | {"tie_word_embeddings": not outer}
        assert ("lm_head.weight" not in text_shapes(config | {"text_config": text_config})) == outer


@pytest.mark.parametrize("text_config", [{"hidden_size": "wide"}, {"layer_types": ["recurrent"]}, 7])
def test_an_error_inside_says_where(text_config: Any) -> None:
    with pytest.raises(InvalidConfig, match="text_config"):
        describe({"model_type": "qwen3_5", "text_config": text_config})


def test_live_gemma3_windows_are_not_halved_twice() -> None:
    bidirectional = {"use_bidirectional_attention": True, "sliding_window": 512}
    published = describe({"model_type": "gemma3_text", **bidirectional})
    assert published == describe(live("gemma3_text", **bidirectional))
    assert "BidirectionalWindow(reach=257)" in repr(published)


@pytest.mark.parametrize(
    "model_type",
    ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe", "glm46v", "qwen3_5", "gemma3"],
)
def test_a_live_text_config_counts_as_the_text_of_the_whole(model_type: str) -> None:
    """What `config.get_text_config()` gives a text-only trainer."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type)
    whole, text = FlopCounter(config), FlopCounter(config.get_text_config())
    assert text([300, 17]) == whole([300, 17]) > 0
