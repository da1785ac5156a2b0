"""Heads that `architectures` names: classifiers on decoders, as transformers builds them; and what is said
of encoder-decoders."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flopcalc
from flopcalc import InvalidConfig, UnsupportedModel
from flopcalc.estimators import ESTIMATORS
from flopcalc.survey import build_with, shallow

TINY = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 5000,
}  # fmt: skip


@pytest.mark.parametrize("task", ["SequenceClassification", "TokenClassification"])
def test_classifiers_have_the_parameters_of_the_real_model(task: str) -> None:
    import torch
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto

    build = getattr(modeling_auto, f"AutoModelFor{task}").from_config
    mapping = {"SequenceClassification": "SEQUENCE", "TokenClassification": "TOKEN"}[task]
    classes = getattr(modeling_auto, f"MODEL_FOR_{mapping}_CLASSIFICATION_MAPPING_NAMES")
    equal = []
    for model_type in sorted(classes.keys() & set(ESTIMATORS)):
        fields = shallow(ESTIMATORS[model_type].schema, build_with(model_type)) | {"num_labels": 3}
        try:
            tree = flopcalc.describe(fields | {"architectures": [classes[model_type]]})
        except UnsupportedModel:  # BERT's kin, whose classifier is more than a matrix
            continue
        options = {name: value for name, value in fields.items() if name != "model_type"}
        with torch.device("meta"):
            model = build(AutoConfig.for_model(model_type, **options))
        real = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        assert dict(tree.parameters()) == real, model_type
        equal.append(model_type)
    assert len(equal) >= {"SequenceClassification": 60, "TokenClassification": 40}[task]


def test_a_classifier_reads_every_token() -> None:
    """2 * 64 * labels FLOPs a token instead of 2 * 64 * 5000."""
    plain = flopcalc.estimate_flops(TINY, [100], convention="exact", phase="forward")
    for fields, labels in (
        ({}, 2),
        ({"num_labels": 1}, 1),
        ({"id2label": {"0": "bad", "1": "so-so", "2": "good"}}, 3),
    ):
        config = TINY | {"architectures": ["LlamaForSequenceClassification"], **fields}
        counted = flopcalc.estimate_flops(config, [100], convention="exact", phase="forward")
        assert plain - counted == 100 * 2 * 64 * (5000 - labels)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"num_labels": 0}, InvalidConfig, "num_labels: found 0"),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, UnsupportedModel, "architectures"),
        ({"model_type": "bart", "architectures": ["BartForSequenceClassification"]}, UnsupportedModel, "architectures"),
    ],
)
def test_what_is_no_plain_classifier_is_named(fields: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        flopcalc.describe(TINY | {"architectures": ["LlamaForTokenClassification"]} | fields)


def test_the_config_of_an_encoder_and_a_decoder_says_that_the_decoder_alone_is_counted() -> None:
    with pytest.warns(UserWarning, match="whisper: .* the decoder alone is counted"):
        flopcalc.describe("openai/whisper-large-v3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flopcalc.describe({"model_type": "whisper"})
