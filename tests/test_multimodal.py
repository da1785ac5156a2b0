"""Models that see and hear, against the real ones: small models are built on the CPU, their towers run, and
our forward matmul FLOPs equal what the operator counter sees."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from test_towers import counted, seen
from transformers import AutoConfig, AutoModelForMultimodalLM

from flopcalc import FlopCounter, InvalidBatch, InvalidConfig, describe
from flopcalc.verify import EAGER, operator_flops


def real_model(config: dict[str, Any]) -> Any:
    """The whole model on the CPU."""
    fields = copy.deepcopy(config)
    real = AutoConfig.for_model(fields.pop("model_type"), **fields)
    return AutoModelForMultimodalLM.from_config(real, attn_implementation="eager").eval()


TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "pad_token_id": 0,
}
NOTE = {
    "model_type": "dots3_note",
    "text_config": TEXT
    | {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_key_value_heads": 4},
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 40,
        "moe_intermediate_size": 12,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "patch_size": 4,
        "pyramid_num_routed": [-1, 1, 6],
        "adapter_in_dim": 16,
        "adapter_out_dim": 32,
    },
    "audio_config": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "feature_size": 13,
        "downsample_hidden_size": 4,
        "adapter_input_size": 16,
        "adapter_out_dim": 32,
    },
}


@pytest.mark.parametrize("grid", [(1, 4, 6), (2, 8, 10)], ids=str)
def test_vision_experts_of_dots3_note_run_the_flops_that_we_count(grid: tuple[int, int, int]) -> None:
    frames, height, width = grid
    pixels = torch.zeros(frames * height * width, 3 * 4 * 4)
    model = real_model(NOTE)
    ran = seen(NOTE, "model.vision_tower", model, lambda tower: tower(pixels, grid_thw=torch.tensor([grid])))
    assert ran == counted(NOTE, images=[grid])
    assert min(ran) > 0


@pytest.mark.parametrize("frames", [16, 27, 801])
def test_audio_of_dots3_note_runs_the_flops_that_we_count(frames: int) -> None:
    def hear(tower: Any) -> Any:
        return tower(torch.zeros(1, 13, frames), chunk_sample_lengths=torch.tensor([160 * frames]))

    ran = seen(NOTE, "model.audio_tower", real_model(NOTE), hear)
    assert ran == counted(NOTE, audios=[frames])
    assert min(ran) > 0


def test_a_flat_file_of_dots3_note_reads_as_a_nested_one() -> None:
    towers = {name: NOTE[name] for name in ("model_type", "vision_config", "audio_config")}
    assert list(describe({**towers, **NOTE["text_config"]}).parameters()) == list(describe(NOTE).parameters())


@pytest.mark.parametrize(
    ("part", "fields", "named"),
    [
        ("vision_config", {"adapter_in_dim": 20}, "adapter_in_dim: found 20, expected hidden_size = 16"),
        ("vision_config", {"adapter_merge_size": 3}, "adapter_merge_size: found 3"),
        ("vision_config", {"adapter_out_dim": 20}, "vision_config: adapter_out_dim: found 20"),
        ("vision_config", {"mlp_bias": True}, "mlp_bias: found true"),
        ("vision_config", {"pyramid_num_routed": [-1, 4]}, "mlp_layer_types: found 2 entries"),
        ("vision_config", {"per_layer_config": {"2": {"num_local_experts": 1}}}, "num_experts_per_tok: found 2"),
        ("vision_config", {"per_layer_config": {"1": {"hidden_size": 8}}}, "per_layer_config: found hidden_size = 8"),
        ("vision_config", {"per_layer_config": {"1": {"num_local_experts": "x"}}}, "'x' of layer 1"),
        ("vision_config", {"per_layer_config": {"one": {}}}, "per_layer_config: found 'one', expected the number"),
        ("audio_config", {"adapter_input_size": 20}, "adapter_input_size: found 20, expected hidden_size = 16"),
        ("audio_config", {"adapter_out_dim": 20}, "audio_config: adapter_out_dim: found 20"),
        ("audio_config", {"num_attention_heads": 3}, "hidden_size: found 16, expected a multiple"),
    ],
)
def test_a_part_of_dots3_note_that_does_not_fit_is_named(part: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe({**NOTE, part: NOTE[part] | fields})


IMAGE, AUDIO = 1, 2  # tokens that stand for those of an image and an audio
PHI = TEXT | {
    "model_type": "phi4_multimodal",
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": 32,
        "crop_size": 32,
        "patch_size": 4,
        "image_token_id": IMAGE,
    },
    "audio_config": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_blocks": 2,
        "num_attention_heads": 2,
        "ext_pw_out_channel": 16,
        "depthwise_separable_out_channel": 16,
        "nemo_conv_channels": 4,
        "input_size": 13,
        "audio_token_id": AUDIO,
    },
}
SIDE = 8  # patches of a crop
PADDED_TAPS = 2 * 2 * 2 * 16 * 16
"""Behind the taps of each of two layers, 16 x 16 weights also meet two tokens of padding, which are then cut off."""


def look(rows: int, columns: int) -> tuple[list[int], dict[str, Any]]:
    """Tokens and inputs of an image of so many crops."""
    tokens = rows * SIDE // 2 * (columns * SIDE // 2 + 1) + 1 + SIDE // 2 * (SIDE // 2 + 1)
    crops = rows * columns + 1  # the whole image is one too
    return [IMAGE] * tokens, {
        "image_pixel_values": torch.zeros(1, crops, 3, 4 * SIDE, 4 * SIDE),
        "image_sizes": torch.tensor([[4 * SIDE * rows, 4 * SIDE * columns]]),
        "image_attention_mask": torch.ones(1, crops, SIDE, SIDE),
    }


def hear(frames: int) -> tuple[list[int], dict[str, Any]]:
    tokens = -(-frames // 8)
    return [AUDIO] * tokens, {
        "audio_input_features": torch.zeros(1, frames, 13),
        "audio_embed_sizes": torch.tensor([tokens]),
    }


def run_phi(ids: list[int], inputs: dict[str, Any]) -> tuple[int, int]:
    model = real_model(PHI)
    with torch.no_grad():
        return operator_flops(
            describe(PHI), model, lambda: model(input_ids=torch.tensor([ids]), **inputs, use_cache=False)
        )


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (3, 1)])
def test_crops_of_phi4_run_the_flops_that_we_count(rows: int, columns: int) -> None:
    ids, inputs = look(rows, columns)
    weights, pairs = run_phi([*ids, 5, 6, 7], inputs)
    ours = counted(PHI, [len(ids) + 3], images=[(1, rows * SIDE, columns * SIDE)])
    # in the head, one query of 16 numbers meets each patch of its crop; the counter takes its scores for a
    # product of the module's own weights, and does not see the sum of a single row
    scores = 2 * (rows * columns + 1) * SIDE**2 * 16
    assert (weights - scores, pairs + 2 * scores) == ours


@pytest.mark.parametrize("frames", [16, 77, 4000])
def test_conformer_of_phi4_runs_the_flops_that_we_count(frames: int) -> None:
    ids, inputs = hear(frames)
    weights, pairs = run_phi([*ids, 5, 6, 7], inputs)
    ours = counted(PHI, [len(ids) + 3], audios=[frames])
    assert (weights, pairs) == (ours[0] + PADDED_TAPS, ours[1])


def test_a_long_audio_of_phi4_attends_in_pieces() -> None:
    """Tokens of 8 frames: 500 and 120 of them in two layers of two heads, 8 numbers each."""
    kinds = FlopCounter(PHI, "exact", "forward").by_kind([], audios=[4960])
    assert kinds["attention"] == 2 * 2 * 4 * 8 * (500**2 + 120**2)


def test_phi4_hears_beside_images_through_projections_of_the_same_sizes() -> None:
    (seen_ids, image), (heard_ids, audio) = look(1, 1), hear(80)
    weights, _ = run_phi([*seen_ids, *heard_ids, 5], image | audio)
    ours, _ = counted(PHI, [len(seen_ids) + 11], images=[(1, SIDE, SIDE)], audios=[80])
    assert weights == ours + PADDED_TAPS + 2 * 2 * SIDE**2 * 16  # and the scores of two heads, as above


def test_the_unread_layers_of_phi4_run_forward_for_nothing() -> None:
    images = [(1, SIDE, SIDE)]
    tower = "model.embed_tokens_extend.image_embed.img_processor"
    trained, forward = (
        FlopCounter(PHI, EAGER, phase).breakdown([], images).by_module() for phase in ("train", "forward")
    )
    for unread in ("encoder.layers.2", "head"):
        assert trained[f"{tower}.{unread}"] == forward[f"{tower}.{unread}"] > 0
    assert trained[f"{tower}.encoder.layers.1"] == 3 * forward[f"{tower}.encoder.layers.1"]


def test_phi4_needs_the_height_of_an_image() -> None:
    with pytest.raises(InvalidBatch, match=r"found 64 patches, expected \(frames, height, width\)"):
        FlopCounter(PHI)([], images=[64])


@pytest.mark.parametrize(
    ("part", "fields", "named"),
    [
        ("vision_config", {"crop_size": 28}, "crop_size: found 28, expected an even number of patches"),
        ("vision_config", {"feature_layer": -5}, "feature_layer: found -5, expected a layer of the tower's 3"),
        ("audio_config", {"time_reduction": 5}, "time_reduction: found 5, expected a multiple of 2"),
        ("audio_config", {"num_blocks": 10**9}, "audio_config.num_blocks: found 1000000000"),
    ],
)
def test_a_part_of_phi4_that_does_not_fit_is_named(part: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe({**PHI, part: PHI[part] | fields})
