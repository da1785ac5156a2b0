"""Gemma 3n as a whole. transformers builds its vision tower with timm alone: where that is not installed, the
rest of the model is judged beside an empty tower, and the tower by what timm 1.0.31 was seen to build and run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import trained
from test_towers import counted, seen
from test_training import everything, frozen, only

from flopcalc import FlopCounter, InvalidConfig, describe
from flopcalc.architectures.mobilenetv5 import mobilenetv5_300m_enc
from flopcalc.config import read_config
from flopcalc.tree import MATMUL_KINDS
from flopcalc.verify import EAGER, build_real_model, compare_flops, compare_parameters, operator_flops

SMALL: dict[str, Any] = {
    "model_type": "gemma3n",
    "text_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 80,
        "vocab_size_per_layer_input": 64,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
    },
    "vision_config": {"hidden_size": 24, "vocab_size": 8, "vocab_offset": 64},
    "audio_config": {
        "hidden_size": 16,
        "vocab_size": 8,
        "vocab_offset": 72,
        "input_feat_size": 13,
        "conf_num_hidden_layers": 2,
        "conf_num_attention_heads": 2,
        "sscp_conv_channel_size": [6, 4],
    },
    "audio_token_id": 73,
    "image_token_id": 65,
}
"""The ids of 8 tokens that stand for images and of 8 for audios come behind those of 64 words."""


@pytest.fixture
def without_vision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """transformers builds an empty vision tower."""
    from transformers.models.gemma3n import modeling_gemma3n as modeling

    class Parts:
        @staticmethod
        def from_config(config: Any) -> Any:
            vision = config.model_type == "gemma3n_vision"
            return torch.nn.Module() if vision else modeling_auto.from_config(config)

    modeling_auto = modeling.AutoModel
    monkeypatch.setattr(modeling, "AutoModel", Parts)
    yield


DEEPER = {"text_config": {"num_hidden_layers": 7, "num_kv_shared_layers": 0, "altup_num_inputs": 2}}
HEARING = {
    "conf_num_hidden_layers": 3,
    "conf_num_attention_heads": 4,
    "hidden_size": 48,
    "conf_conv_kernel_size": 3,
    "sscp_conv_channel_size": [10, 12],
    "sscp_conv_kernel_size": [[5, 3], [3, 2]],
    "sscp_conv_stride_size": [[2, 3], [1, 2]],
    "input_feat_size": 77,
}


@pytest.mark.usefixtures("without_vision")
@pytest.mark.parametrize(
    "fields",
    [
        {"text_config": {"num_hidden_layers": 6, "num_kv_shared_layers": 1}},
        SMALL,
        DEEPER | {"tie_word_embeddings": False},
        SMALL | {"audio_config": SMALL["audio_config"] | HEARING, "vision_config": {"hidden_size": 40}},
        SMALL | {"text_config": SMALL["text_config"] | {"num_key_value_heads": 4, "sliding_window": 20}},
    ],
    ids=["default", "small", "deeper, untied", "other ears", "other attention"],
)
def test_all_but_the_vision_tower_equals_the_real_model(fields: dict[str, Any]) -> None:
    config = {**fields, "model_type": "gemma3n"}
    tree, model = describe(config), build_real_model(*read_config(config))
    missing, surplus = compare_parameters(tree, model)
    assert missing == []
    assert {name for name, _ in surplus} == {f"model.vision_tower.timm_model.{name}" for name, _ in tower_table()}
    for tokens in (48, 131):
        comparison = compare_flops(tree, model, tokens)
        assert comparison.equal and comparison.weights > 0, comparison


def tower_table() -> list[tuple[str, tuple[int, ...]]]:
    return list(mobilenetv5_300m_enc().parameters())


@pytest.mark.usefixtures("without_vision")
@pytest.mark.parametrize("frames", [48, 49, 130])
def test_the_conformer_runs_the_flops_that_we_count(frames: int) -> None:
    model = trained.build(SMALL).eval()
    sound, mask = torch.zeros(1, frames, 13, dtype=torch.bfloat16), torch.zeros(1, frames, dtype=torch.bool)
    tower = seen(SMALL, "model.audio_tower", model, lambda tower: tower(sound, mask))
    embedded = torch.zeros(-(-frames // 16), 16, dtype=torch.bfloat16)
    soft = seen(SMALL, "model.embed_audio", model, lambda embedder: embedder(inputs_embeds=embedded))
    assert (tower[0] + soft[0], tower[1]) == counted(SMALL, audios=[frames])
    assert min(tower) > 0


def test_blocks_of_an_audio_read_what_is_near() -> None:
    """40 tokens of 4 frames, in two layers of two heads of 8 numbers: tokens meet up to 13, and the distance to each;
    23 numbers less where there are fewer before them."""
    exact, dense = (FlopCounter(SMALL, name, "forward").by_kind([], audios=[160]) for name in ("exact", "standard"))
    assert exact["attention"] == 2 * 2 * (4 * 8 + 2 * 8) * (40 * 13 - 78)
    assert dense["attention"] == 2 * 2 * (4 * 8 + 2 * 8) * 40 * 13


def test_two_scores_of_a_pair_share_one_softmax() -> None:
    """30 tokens, of which the eager form multiplies blocks of 12: 3 * 12 * 24 pairs in two layers of two heads."""
    plain, softmax = (
        FlopCounter(SMALL, EAGER.changed(name="softmax", softmax=factor), "forward")([], audios=[120])
        for factor in (0, 3)
    )
    assert softmax - plain == 2 * 2 * 3 * 3 * 12 * 24


@pytest.mark.usefixtures("without_vision")
@pytest.mark.parametrize(
    ("way", "padding", "taps"),
    [
        (everything, 3, True),
        (frozen("model.audio_tower"), 3, False),
        (frozen("model.language_model"), 3, True),
        (only("model.audio_tower"), 1, True),
        (only("*.relative_position_embedding"), 1, False),
        (only("*.conformer.*.attn.k_proj"), 1, False),
        (only("model.embed_audio"), 3, False),
        (only("*.embed_audio.embedding_projection"), 2, False),
    ],
    ids=["everything", "ears frozen", "text frozen", "ears", "positions", "keys", "embedder", "projection"],
)
def test_passes_are_those_of_autograd(way: Any, padding: int, taps: bool) -> None:
    """Beside ours, one token of padding runs so many passes through the embedder, and the counter adds to the
    weight gradients of depthwise `taps` as if they mixed channels. It takes weights that meet frozen streams for
    activations, so that both are compared together."""
    frames, tokens = 64, 4
    real, training = way(trained.build(SMALL | {"audio_soft_tokens_per_image": tokens}))
    ids = torch.tensor([[5, 6, *[73] * tokens, 7, 8, 9]])
    inputs = {
        "input_features": torch.zeros(1, frames, 13, dtype=torch.bfloat16),
        "input_features_mask": torch.ones(1, frames, dtype=torch.bool),
    }
    found = trained.seen(real, False, input_ids=ids, **inputs)
    convolved = trained.AUTOGRAD.changed(name="with taps", weights=MATMUL_KINDS | {"conv"})
    ours = sum(FlopCounter(SMALL, convolved, training=training).by_kind([ids.shape[1]], audios=[frames]).values())
    # 16 channels of 5 taps at 16 places, in each of two layers
    ours += padding * 2 * 16 * 32 + taps * 2 * (2 * 16 * 5 * 16) * 15
    assert ours == found.weights + found.mixers


DIGEST = "9fd8c59c8b40cd93075901db91a00991ee6912a41878ed211ae423c435ce814d"
SEEN = {768: (773_735_841_792, 95_806_291_968), 512: (343_882_596_352, 18_924_699_648)}
"""Products of weights and of activations that one image of so many pixels on either side runs."""


def digest(table: list[tuple[str, tuple[int, ...]]]) -> str:
    return hashlib.sha256(repr(sorted(table)).encode()).hexdigest()


def test_the_vision_tower_is_that_of_timm() -> None:
    assert len(tower_table()) == 548
    assert mobilenetv5_300m_enc().num_params() == 294_126_912
    assert digest(tower_table()) == DIGEST


@pytest.mark.parametrize("pixels", SEEN)
def test_the_vision_tower_runs_the_flops_of_timms(pixels: int) -> None:
    kinds = FlopCounter(mobilenetv5_300m_enc(), EAGER, "forward").by_kind([], images=[(1, pixels // 16, pixels // 16)])
    weights = sum(flops for kind, flops in kinds.items() if kind in MATMUL_KINDS)
    assert (weights, sum(kinds.values()) - weights) == SEEN[pixels]


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("pixels", SEEN)
def test_timm_still_has_that_tower(pixels: int) -> None:
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(False)
    with torch.device("meta"):
        tower = timm.create_model("mobilenetv5_300m_enc").eval()
        image = torch.zeros(1, 3, pixels, pixels)
    assert digest([(name, tuple(parameter.shape)) for name, parameter in tower.named_parameters()]) == DIGEST
    assert operator_flops(mobilenetv5_300m_enc(), tower, lambda: tower(image)) == SEEN[pixels]


def test_an_image_adds_its_tower_and_256_tokens_through_the_projection() -> None:
    counter = FlopCounter({"model_type": "gemma3n"}, EAGER, "forward")
    text, image = counter([50]), counter([50], images=[(1, 48, 48)])
    assert image - text == sum(SEEN[768]) + 2 * 256 * 2048 * 2048
    assert counter([50], images=[2304, 2304]) - text == 2 * (image - text)


def test_all_tokens_of_the_text_pass_both_projections() -> None:
    whole = describe(SMALL)
    text = describe({"model_type": "gemma3n_text", **SMALL["text_config"]})
    assert whole.num_matmul_params() - text.num_matmul_params() == 32 * 24 + 32 * 16


@pytest.mark.parametrize(
    ("part", "fields", "named"),
    [
        ("vision_config", {"architecture": "resnet50"}, "vision_config.architecture: found 'resnet50'"),
        ("vision_config", {"model_args": {"in_chans": 4}}, "vision_config.model_args: found"),
        ("audio_config", {"sscp_conv_stride_size": [[2, 2]]}, "audio_config.sscp_conv_stride_size"),
        ("audio_config", {"conf_num_hidden_layers": 10**9}, "audio_config.conf_num_hidden_layers"),
    ],
)
def test_a_part_that_does_not_fit_is_named(part: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe({**SMALL, part: SMALL[part] | fields})
