"""Models that see and hear, against the real ones: small models are built on the CPU, their towers run, and
our forward matmul FLOPs equal what the operator counter sees."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import trained
from test_towers import counted, seen
from test_training import Prepared, everything, frozen, lora, only
from transformers import AutoConfig, AutoModelForMultimodalLM

from flopcalc import FlopCounter, InvalidBatch, InvalidConfig, describe
from flopcalc.spans import BlockContext, BlockPositions
from flopcalc.tree import MATMUL_KINDS
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
NOTE: dict[str, Any] = {
    "model_type": "dots3_note",
    "text_config": TEXT
    | {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_key_value_heads": 4},
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 40,
        "moe_intermediate_size": 16,
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


LLAVA = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", **TEXT},
    "vision_config": PHI["vision_config"] | {"model_type": "clip_vision_model"},
    "vision_feature_layer": -1,
    "image_token_index": IMAGE,
}


def llava_batch() -> tuple[list[int], dict[str, Any]]:
    return [IMAGE] * SIDE**2, {"pixel_values": torch.zeros(1, 3, 4 * SIDE, 4 * SIDE)}


def note_batch() -> tuple[list[int], dict[str, Any]]:
    pixels = torch.zeros(24, 3 * 4 * 4)
    audio = {
        "input_features": torch.zeros(1, 13, 32, dtype=torch.bfloat16),
        "chunk_sample_lengths": torch.tensor([5120]),
    }
    return [IMAGE] * 6 + [AUDIO] * 4, {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 6]]), **audio}


CONVOLVED = trained.AUTOGRAD.changed(name="eager, with taps", weights=MATMUL_KINDS | {"conv"})
"""Taps of convolutions are products to the counter too."""


class Batch(NamedTuple):
    """A model, what it is called with, and the same for us."""

    config: dict[str, Any]
    called: Callable[[], tuple[list[int], dict[str, Any]]]
    media: dict[str, Any]
    unseen: int = 0
    """Products of the pooling head: the sum of a single row, which the counter does not see; it takes others for
    those of activations."""
    depthwise: int = 0
    """What the counter adds to the weight gradients of depthwise convolutions, as if they mixed channels."""


BATCHES = {
    "llava": Batch(LLAVA, llava_batch, {"images": [(1, SIDE, SIDE)]}),
    "dots3_note": Batch(
        NOTE | {"image_token_id": IMAGE, "audio_token_id": AUDIO}, note_batch, {"images": [(1, 4, 6)], "audios": [32]}
    ),
    "phi4_multimodal, image": Batch(
        PHI, lambda: look(1, 2), {"images": [(1, SIDE, 2 * SIDE)]}, unseen=2 * 3 * SIDE**2 * 16
    ),
    "phi4_multimodal, audio": Batch(
        PHI | {"audio_config": PHI["audio_config"] | {"kernel_size": 1}},  # no padding
        lambda: hear(40),
        {"audios": [40]},
        # 4 channels and 9 taps at 10 x 4 and 5 x 2 places, 16 channels and one tap at 5 in each of two layers
        depthwise=2 * 4 * 9 * (10 * 4 + 5 * 2) * 3 + 2 * 2 * 16 * 5 * 15,
    ),
}
WAYS: dict[str, Callable[[Any], Prepared]] = {
    "everything": everything,
    "towers frozen": frozen("*vision_tower", "*audio_tower", "*img_processor", "*encoder"),
    "towers alone": only("*vision_tower", "*audio_tower", "*img_processor", "*audio_embed.encoder"),
    "projectors alone": only("*projector", "*merger", "*adapter", "*img_projection_*", "*up_proj_for_speech"),
    "language model frozen": frozen("*language_model", "model.layers", "model.norm", "lm_head"),
    "LoRA on queries": lora(lambda names: names & {"q_proj", "qkv", "qkv_proj", "q_b_proj"}),
}


SLOW = "dots3_note"
JUDGED = [(name, way) for name in BATCHES for way in WAYS if name != SLOW or way in ("everything", "projectors alone")]


@pytest.mark.parametrize(("name", "way"), JUDGED)
def test_passes_from_towers_through_projectors_are_those_of_autograd(name: str, way: str) -> None:
    batch = BATCHES[name]
    ids, inputs = batch.called()
    real, training = WAYS[way](trained.build(batch.config))
    found = trained.seen(real, False, input_ids=torch.tensor([[*ids, 5, 6, 7]]), **inputs)
    kinds = FlopCounter(batch.config, CONVOLVED, training=training).by_kind([len(ids) + 3], **batch.media)
    weights = sum(flops for kind, flops in kinds.items() if kind in CONVOLVED.weights)
    mixers = sum(kinds.values()) - weights
    if any(parameter.requires_grad for name, parameter in real.named_parameters() if ".embed.conv." in name):
        weights += batch.depthwise
    if batch.unseen:
        assert weights + mixers - batch.unseen == found.weights + found.mixers
    else:
        assert (weights, mixers) == found


@pytest.mark.parametrize("n", [1, 4, 12, 13, 30])
@pytest.mark.parametrize(("left", "right"), [(12, 0), (3, 2), (0, 0)])
def test_pairs_of_a_block_with_its_context(n: int, left: int, right: int) -> None:
    context, positions = BlockContext(12, left, right), BlockPositions(12, left, right)
    read = sum(max(0, i - left) <= j <= i + right for i in range(n) for j in range(n))
    assert context.pairs(n, "exact") == positions.pairs(n, "exact") == read
    assert context.pairs(n, "dense") == n * min(n, left + 1 + right)
    blocks = (n + 11) // 12
    assert context.pairs(n, "masked") == blocks * 12 * (left + 12 + right)
    assert positions.pairs(n, "masked") == blocks * 12 * (left + 1 + right)
