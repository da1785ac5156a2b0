"""A config in any form gives one number; a bad one gives a named error and nothing else."""

from __future__ import annotations

import copy
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcalc import (
    ESTIMATORS,
    FlopcalcError,
    FlopCounter,
    InvalidConfig,
    UnsupportedModel,
    describe,
    facts,
    is_supported,
)
from flopcalc.config import Schema, read_config

ONE_OF_EACH_TYPE = {file.parent.name: name for name, file in reversed(facts.bundled_configs().items())}
LENGTHS = [1024, 300]
QWEN = "Qwen/Qwen3-30B-A3B"


def bundled(name: str) -> dict[str, Any]:
    return dict(json.loads(facts.bundled_configs()[name].read_text(encoding="utf-8")))


# --- forms -----------------------------------------------------------------------------------------


def forms(name: str, folder: Path) -> Iterator[Any]:
    """The config of a bundled model as a name, path, folder, dict and live object."""
    from transformers import AutoConfig

    file, fields = facts.bundled_configs()[name], bundled(name)
    (folder / "config.json").write_bytes(file.read_bytes())
    yield from (name, file, str(file), folder, str(folder), fields)
    yield {**fields, "quantization_config": {"quant_method": "fp8", "num_hidden_layers": 3}}
    dropped = ("model_type", "auto_map", "quantization_config")
    kept = {key: value for key, value in fields.items() if key not in dropped}
    try:
        yield AutoConfig.for_model(read_config(fields)[0], **kept)
    except ValueError:  # transformers knows no such type
        return


@pytest.mark.parametrize("model_type", sorted(ONE_OF_EACH_TYPE))
def test_every_form_of_a_config_gives_one_number(model_type: str, tmp_path: Path) -> None:
    numbers = [FlopCounter(form)(LENGTHS) for form in forms(ONE_OF_EACH_TYPE[model_type], tmp_path)]
    assert len(set(numbers)) == 1 and numbers[0] > 0


def test_a_hub_id_reads_the_file_that_the_hub_client_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Over the wire: see test_facts.py."""
    (tmp_path / "config.json").write_text(json.dumps(bundled(QWEN)))
    for client in ("hf_hub_download", "try_to_load_from_cache"):
        monkeypatch.setattr(f"huggingface_hub.{client}", lambda name, file: str(tmp_path / file))
    assert FlopCounter("someone/her-copy")(LENGTHS) == FlopCounter(QWEN)(LENGTHS)


def test_a_config_object_of_any_library_is_read_by_its_attributes() -> None:
    """As an object of transformers 4 would be: plain attributes, the type known to the class alone."""

    class Config(SimpleNamespace):
        model_type = "qwen3_moe"

    fields = bundled(QWEN)
    del fields["model_type"]
    assert FlopCounter(Config(**fields))(LENGTHS) == FlopCounter(QWEN)(LENGTHS)


def test_a_file_that_names_its_class_alone_has_that_class_s_type() -> None:
    """As MiniCPM3-4B is published. Lists of several classes tell nothing."""
    named = {"architectures": ["MiniCPM3ForCausalLM"], "num_hidden_layers": 2}
    assert FlopCounter(named)(LENGTHS) == FlopCounter({**named, "model_type": "minicpm3"})(LENGTHS)
    with pytest.raises(InvalidConfig, match="model_type"):
        describe({"architectures": ["MiniCPM3ForCausalLM", "LlamaForCausalLM"]})


def test_types_of_classes_are_those_of_transformers() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as MAPPING

    assert all(MAPPING[model_type] == name for name, model_type in facts.types_of_classes().items())


def test_a_live_config_is_read_as_it_is_and_not_as_it_was_published() -> None:
    from transformers import AutoConfig

    config = AutoConfig.for_model("qwen3", num_hidden_layers=4)
    config._name_or_path = "Qwen/Qwen3-8B"
    before = FlopCounter(config)([100])
    config.num_hidden_layers = 2
    config.layer_types = config.layer_types[:2]
    assert FlopCounter(config)([100]) < before


def test_reading_does_not_change_the_config() -> None:
    fields = bundled(QWEN)
    before = copy.deepcopy(fields)
    describe(fields)
    assert fields == before


def test_a_field_that_exists_proves_nothing() -> None:
    stray = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128, "text_config": None, "num_experts": 60}
    fields = bundled("Qwen/Qwen3-8B")
    assert FlopCounter({**fields, **stray})(LENGTHS) == FlopCounter(fields)(LENGTHS)


# --- bad input -------------------------------------------------------------------------------------

MOE = {"model_type": "qwen3_moe", "num_hidden_layers": 2}
DENSE = {"model_type": "qwen3", "num_hidden_layers": 2}


def test_no_type_is_both_counted_and_known_not_to_be() -> None:
    known = facts.not_counted()
    assert {"t5", "vit", "clip"} <= known.keys()
    assert not known.keys() & set(ESTIMATORS)
    assert not is_supported("t5") and not is_supported({"model_type": "vit"})


def test_the_types_known_not_to_be_counted_are_spelt_as_transformers_spells_them() -> None:
    from transformers import CONFIG_MAPPING

    assert facts.not_counted().keys() <= set(CONFIG_MAPPING.keys())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "t5"}, ["'t5'", "a source and of a target", "flopcalc models", "register"]),
        ({"model_type": "vit"}, ["'vit'", "image encoder", "tower", "flopcalc models"]),
        ({"model_type": "clip_vision_model"}, ["'clip_vision_model'", "part of other models"]),
        ({"model_type": "qwen3mo"}, ["'qwen3mo'", "qwen3_moe", "flopcalc models", "register"]),
        ({"model_type": "resnet"}, ["'resnet'", "flopcalc models"]),
        ({}, ["model_type", "None"]),
        ({"architectures": ["Qwen3ForCausalLM"]}, ["model_type", "None", "that of Qwen3ForCausalLM"]),
        ({"model_type": 7, "architectures": ["MiniCPM3ForCausalLM"]}, ["model_type", "7"]),
        ({"model_type": 7}, ["model_type", "7"]),
        ({"model_type": ""}, ["model_type"]),
        (None, ["NoneType"]),
        (b"llama", ["bytes"]),
        ([1], ["list"]),
        ({**DENSE, "hidden_size": None}, ["qwen3", "hidden_size", "None"]),
        ({**DENSE, "hidden_size": "4096"}, ["hidden_size", "'4096'"]),
        ({**DENSE, "hidden_size": 4096.5}, ["hidden_size", "4096.5"]),
        ({**DENSE, "hidden_size": -1}, ["hidden_size", "-1"]),
        ({**DENSE, "hidden_size": 0}, ["hidden_size", "0"]),
        ({**DENSE, "hidden_size": True}, ["hidden_size", "True"]),
        ({**DENSE, "hidden_size": 10**30}, ["hidden_size"]),
        ({**DENSE, "num_attention_heads": [32]}, ["num_attention_heads", "[32]"]),
        ({**DENSE, "num_hidden_layers": -2}, ["num_hidden_layers", "-2"]),
        ({**DENSE, "num_hidden_layers": 10**9}, ["num_hidden_layers", "1000000000"]),
        ({"model_type": "gpt2", "n_layer": 2**40 - 1}, ["n_layer", "1099511627775"]),
        ({"model_type": "cohere2_moe", "first_k_dense_replace": 2**40 - 1}, ["first_k_dense_replace"]),
        ({**DENSE, "tie_word_embeddings": "yes"}, ["tie_word_embeddings", "'yes'"]),
        ({**DENSE, "layer_types": ["full_attention"]}, ["layer_types", "1 entries", "2"]),
        ({**DENSE, "layer_types": ["full_attention", "sparse"]}, ["layer_types", "'sparse'", "full_attention"]),
        ({**DENSE, "layer_types": "full_attention"}, ["layer_types"]),
        ({**MOE, "num_experts_per_tok": None}, ["num_experts_per_tok", "None"]),
        ({**MOE, "num_experts_per_tok": 129}, ["num_experts_per_tok", "129", "128"]),
        ({**MOE, "num_experts_per_tok": -1}, ["num_experts_per_tok", "-1"]),
        (
            {"model_type": "zamba2", "hidden_size": 3584, "mamba_headdim": 64},
            ["n_mamba_heads", "found none, which means 8", "mamba_headdim = 64", "expected 112"],
        ),
        ({"model_type": "qwen3_5", "text_config": {"hidden_size": -5}}, ["text_config", "hidden_size", "-5"]),
        ({"model_type": "qwen3_5", "text_config": "qwen3_5_text"}, ["text_config"]),
    ],
    ids=lambda value: str(value)[:60] if not isinstance(value, list) else "",
)
def test_a_bad_config_is_an_error_that_names_the_field(config: Any, says: list[str]) -> None:
    with pytest.raises(FlopcalcError) as raised:
        describe(config)
    assert isinstance(raised.value, (InvalidConfig, UnsupportedModel))
    assert all(word in str(raised.value) for word in says), str(raised.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a readable config.json"),
        (b"not json", "not a readable config.json"),
        (b'{"model_type": "llama",}', "not a readable config.json"),
        (b"\xff\xfe{}", "not a readable config.json"),
        (b"[" * 100_000, "not a readable config.json"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", "not a readable config.json"),
        (b"[1]", "list"),
        (b"null", "NoneType"),
        (b'{"hidden_size": 8}', "model_type"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "hidden_size"),
        (b'{"model_type": "llama", "hidden_size": 1e400}', "hidden_size"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_file_is_an_error_that_names_it(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    for form in (path, str(tmp_path)):
        with pytest.raises(InvalidConfig, match=says):
            describe(form)


def test_a_file_far_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(2**36)  # sparse: takes no space
    with pytest.raises(InvalidConfig, match="68719476736 bytes"):
        describe(path)


@pytest.mark.parametrize(
    "name", ["config.json", "no/such/folder", "a b", "..", "./x", "x" * 5000, "a\0b", "", "-", "~"]
)
def test_a_path_or_name_that_leads_nowhere_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for form in (name, Path(name)):
        with pytest.raises(InvalidConfig):
            describe(form)


def test_a_folder_without_config_json_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"folder without config\.json"):
        describe(tmp_path)


def test_a_device_or_socket_is_no_config() -> None:
    with pytest.raises(InvalidConfig):
        describe("/dev/null")


# --- mutated configs -------------------------------------------------------------------------------

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 9),
        st.integers(),
        st.sampled_from([10**9, 2**40 - 1, 2**63, 10**400, float("nan"), float("inf"), 0.5, -1.0]),
        st.floats(),
        st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "moe", "dense", "M*-E", "8", ""]),
        st.text(max_size=6),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)


def places(fields: dict[str, Any], schema: type[Schema]) -> Iterator[tuple[str, ...]]:
    """Where a config can be changed: its keys, the fields of its schema, and those of nested configs."""
    for name in {*fields, *schema.model_fields}:
        yield (name,)
        inner = schema.model_fields[name].annotation if name in schema.model_fields else None
        if isinstance(inner, type) and issubclass(inner, Schema):
            nested = fields.get(name)
            yield from ((name, *rest) for rest in places(nested if isinstance(nested, dict) else {}, inner))


ABSENT = object()


def changed(fields: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy of the config with one value set, or taken away."""
    top = at = copy.deepcopy(fields)
    for name in place[:-1]:
        if not isinstance(at.get(name), dict):
            at[name] = {}
        at = at[name]
    if value is ABSENT:
        at.pop(place[-1], None)
    else:
        at[place[-1]] = value
    return top


def count_or_refuse(config: dict[str, Any]) -> None:
    try:
        number = FlopCounter(config, "exact")(LENGTHS)
    except FlopcalcError as error:
        assert str(error)
    else:
        assert type(number) is int and number >= 0


def base_of(model_type: str) -> dict[str, Any]:
    name = ONE_OF_EACH_TYPE.get(model_type)
    return bundled(name) if name else {"model_type": model_type}


@st.composite
def mutated(draw: st.DrawFn, fields: dict[str, Any], schema: type[Schema]) -> dict[str, Any]:
    for place in draw(st.lists(st.sampled_from(sorted(places(fields, schema))), min_size=1, max_size=3)):
        fields = changed(fields, place, draw(st.one_of(VALUES, st.just(ABSENT))))
    return fields


@pytest.mark.parametrize("model_type", sorted(ESTIMATORS))
def test_a_mutated_config_gives_a_number_or_a_named_error(model_type: str) -> None:
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(mutated(base_of(model_type), ESTIMATORS[model_type].schema))
    def check(config: dict[str, Any]) -> None:
        count_or_refuse(config)

    check()


@pytest.mark.parametrize("model_type", sorted(ESTIMATORS))
def test_no_value_of_a_single_field_breaks_the_reader(model_type: str) -> None:
    """Nor makes it list a billion parts: what a model repeats is bounded."""
    fields = base_of(model_type)

    def give_up(*_: Any) -> None:
        raise TimeoutError(f"{model_type}: a config with {place} = {value} is still being read")

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        for place in places(fields, ESTIMATORS[model_type].schema):
            for value in (2**40 - 1, [], [0, 0, 0, 0], {"a": 1}):
                signal.alarm(20)
                count_or_refuse(changed(fields, place, value))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_named(value: float) -> None:
    with pytest.raises(InvalidConfig, match="ffn_proj_factor"):
        describe({"model_type": "xlstm", "ffn_proj_factor": value})


def test_an_experts_top_k_means_nothing_where_there_is_one_expert() -> None:
    assert describe({"model_type": "jamba", "num_experts": 1}).num_params() == 9_290_690_432  # transformers' own


@given(VALUES)
def test_any_value_as_a_config_gives_a_number_or_a_named_error(value: Any) -> None:
    if isinstance(value, str):
        return  # a name or path
    with pytest.raises(FlopcalcError):
        read_config(value)
