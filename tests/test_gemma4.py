"""What no text forward pass shows of Gemma 4: its drafters, its tower, and configs that contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import trained
from test_towers import counted, seen
from test_training import everything, frozen, only

from flopcalc import FlopCounter, InvalidBatch, InvalidConfig, describe
from flopcalc.tree import MATMUL_KINDS
from flopcalc.verify import EAGER, build_real_model, compare_parameters, operator_flops

TEXT = {
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "vocab_size": 256,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
}
# five layers of 4 heads of 16, one of 4 heads of 32: queries and outputs; gate, up and down; projections
LAYERS = 5 * 2 * 64 * 64 + 2 * 64 * 128 + 6 * 3 * 64 * 96
PROJECTIONS = 2 * 48 * 64 + 64 * 48
ORDERED = {"use_ordered_embeddings": True, "num_centroids": 32, "centroid_intermediate_top_k": 4}


def drafter(model_type: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, "text_config": TEXT, "backbone_hidden_size": 48, **fields}


def real_model(config: dict[str, Any]) -> Any:
    fields = {key: value for key, value in config.items() if key != "model_type"}
    return build_real_model(config["model_type"], fields)


@pytest.mark.parametrize("model_type", ["gemma4_assistant", "gemma4_unified_assistant"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_drafter_runs_the_flops_that_we_count(model_type: str, tied: bool) -> None:
    config = drafter(model_type, tie_word_embeddings=tied)
    tree, model = describe(config), real_model(config)
    assert compare_parameters(tree, model) == ([], [])
    keys = {"full_attention": 32, "sliding_attention": 16}
    shared = {
        kind: (torch.zeros(1, 2, 20, dim, dtype=torch.bfloat16, device="meta"),) * 2 for kind, dim in keys.items()
    }
    inputs = torch.zeros(1, 1, 96, dtype=torch.bfloat16, device="meta")
    position = torch.zeros(1, 1, dtype=torch.long, device="meta")
    weights, _ = operator_flops(
        tree, model, lambda: model(inputs_embeds=inputs, shared_kv_states=shared, position_ids=position)
    )
    assert weights == 2 * (LAYERS + PROJECTIONS + 64 * 256) == 2 * tree.num_matmul_params()
    counted = FlopCounter(config, EAGER, "forward").breakdown([20]).by_kind()
    assert sum(flops for kind, flops in counted.items() if kind in MATMUL_KINDS) == 20 * weights
    assert counted["attention"] == 2 * 4 * (5 * 2 * 16 + 2 * 32) * 20 * 20


@pytest.mark.parametrize("tied", [True, False])
def test_ordered_embeddings_score_the_rows_of_the_nearest_centroids(tied: bool) -> None:
    config = drafter("gemma4_assistant", tie_word_embeddings=tied, **ORDERED)
    tree = describe(config)
    assert compare_parameters(tree, real_model(config)) == ([], [])
    rows = 4 * 256 // 32
    assert tree.num_matmul_params() == LAYERS + PROJECTIONS + 64 * 32 + 64 * rows


@pytest.mark.parametrize("use_clipped_linears", [True, False])
@pytest.mark.parametrize("patches", [4, 9])
def test_the_tower_runs_the_flops_that_we_count(patches: int, use_clipped_linears: bool) -> None:
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    vision |= {"num_key_value_heads": 3, "head_dim": 8, "patch_size": 4, "position_embedding_size": 16}
    vision |= {"use_clipped_linears": use_clipped_linears, "pooling_kernel_size": 1}
    config = {"model_type": "gemma4", "text_config": TEXT, "vision_config": vision}
    tree, model = describe(config), real_model(config).model
    pixels = torch.zeros(1, patches, 3 * 4 * 4, device="meta")
    places = torch.zeros(1, patches, 2, dtype=torch.long, device="meta")

    def run() -> None:
        embedded = model.vision_tower.patch_embedder(pixels, places, torch.zeros(1, patches, dtype=bool, device="meta"))
        mask = torch.zeros(1, 1, patches, patches, dtype=torch.bfloat16, device="meta")
        states = model.vision_tower.encoder(embedded, mask, pixel_position_ids=places).last_hidden_state
        model.embed_vision(states)

    weights, pairs = operator_flops(tree, model, run, "model")
    counted = FlopCounter(tree, EAGER, "forward").breakdown([], images=[patches]).by_kind()
    assert counted.pop("attention") == pairs == 2 * 2 * 3 * 2 * 8 * patches * patches
    assert sum(counted[kind] for kind in counted if kind in MATMUL_KINDS) == weights
    pooled = FlopCounter(config | {"vision_config": vision | {"pooling_kernel_size": 3}}, EAGER, "forward")
    projection = "model.embed_vision.embedding_projection"
    assert pooled.breakdown([], images=[18]).by_module()[projection] == 2 * 2 * 24 * 64


HEARING = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "subsampling_conv_channels": [12, 6],
    "output_proj_dims": 24,
}
"""Of 12 frequencies, or 9 to 11."""
EARS = {
    "as published": {},
    "other context": {"attention_chunk_size": 5, "attention_context_left": 4, "attention_context_right": 3},
    "ahead by one": {"attention_context_right": 1},
    "few distances": {"attention_chunk_size": 2, "attention_context_left": 9},
    "other sizes": {"num_attention_heads": 4, "conv_kernel_size": 3, "subsampling_conv_channels": [15, 5]},
    "unclipped": {"use_clipped_linears": False},
}
SOUND = {"model_type": "gemma4", "text_config": TEXT, "audio_config": HEARING, "audio_token_id": 73}


def hearing(ears: str) -> dict[str, Any]:
    return SOUND | {"audio_config": HEARING | EARS[ears]}


@pytest.mark.parametrize("frames", [1, 48, 49, 130])
@pytest.mark.parametrize("ears", EARS)
def test_the_conformer_runs_the_flops_that_we_count(ears: str, frames: int) -> None:
    config = hearing(ears)
    assert compare_parameters(describe(config), real_model(config)) == ([], [])
    model = trained.build(config).eval()
    sound, mask = torch.zeros(1, frames, 12, dtype=torch.bfloat16), torch.ones(1, frames, dtype=torch.bool)
    heard = torch.zeros(1, -(-frames // 4), 24, dtype=torch.bfloat16)
    tower = seen(config, "model.audio_tower", model, lambda tower: tower(sound, mask))
    projection = seen(config, "model.embed_audio", model, lambda embedder: embedder(heard))
    assert (tower[0] + projection[0], tower[1]) == counted(config, audios=[frames])
    assert min(tower) > 0


@pytest.mark.parametrize("frames", [4, 48, 130])
@pytest.mark.parametrize("ears", EARS)
def test_tokens_of_an_audio_read_those_that_the_model_shows_them(ears: str, frames: int) -> None:
    """In two layers, heads of 8 numbers (or four of 4): scores, those of distances, and the sum."""
    model = trained.build(hearing(ears)).eval().model.audio_tower
    sound, mask = torch.zeros(1, frames, 12, dtype=torch.bfloat16), torch.ones(1, frames, dtype=torch.bool)
    weights = model(sound, mask, output_attentions=True).attentions[0]
    tokens = -(-frames // 4)
    read = int((weights[0, 0].flatten(0, 1)[:tokens] > 0).sum())
    assert FlopCounter(hearing(ears), "exact", "forward").by_kind([], audios=[frames])["attention"] == 2 * 6 * 16 * read


def test_an_audio_reads_twelve_tokens_at_most() -> None:
    """40 tokens, of 4 frames each; 66 less where there are fewer before one. Two layers of two heads of 8 numbers."""
    exact, dense = (FlopCounter(SOUND, name, "forward").by_kind([], audios=[160]) for name in ("exact", "standard"))
    assert exact["attention"] == 2 * 2 * 6 * 8 * (40 * 12 - 66)
    assert dense["attention"] == 2 * 2 * 6 * 8 * 40 * 12


def test_an_audio_adds_its_tower_and_its_tokens_through_the_projection() -> None:
    """160 frames make 40 tokens: four blocks of 12, multiplied with 24 tokens and 13 distances."""
    kinds = FlopCounter(SOUND, EAGER, "forward").by_kind([], audios=[160])
    conformer = 4 * 16 * 64 + 4 * 16 * 16 + (2 + 1) * 16 * 16
    per_token = 6 * 3 * 16 + 2 * conformer + 16 * 24 + 24 * 64
    assert kinds["linear"] - 2 * (40 * per_token + 2 * 13 * 16 * 16) == 2 * 9 * (80 * 6 * 12 + 40 * 3 * 12 * 6)
    assert kinds["attention"] == 2 * 2 * 48 * (4 * 8 * 24 + 2 * 8 * 13)
    text = FlopCounter(SOUND, EAGER)
    assert text([50]) == FlopCounter(SOUND | {"audio_config": None}, EAGER)([50])
    assert text([50], audios=[160, 160]) - text([50]) == 2 * (text([50], audios=[160]) - text([50]))


@pytest.mark.parametrize(
    ("way", "taps"),
    [
        (everything, True),
        (frozen("model.audio_tower"), False),
        (frozen("model.language_model"), True),
        (only("model.audio_tower"), True),
        (only("*.relative_k_proj"), False),
        (only("*.audio_tower.layers.*.self_attn.k_proj"), False),
        (only("*.audio_tower.layers.*.self_attn.v_proj"), False),
        (only("*.audio_tower.output_proj"), False),
        (only("model.embed_audio"), False),
    ],
    ids=["everything", "ears frozen", "text frozen", "ears", "distances", "keys", "values", "output", "embedder"],
)
def test_passes_are_those_of_autograd(way: Any, taps: bool) -> None:
    """The counter adds to the weight gradients of depthwise `taps` as if they mixed channels. It takes weights that
    meet frozen streams for activations, so that both are compared together."""
    frames, tokens = 64, 16
    real, training = way(trained.build(SOUND))
    ids = torch.tensor([[5, 6, *[73] * tokens, 7, 8, 9]])
    inputs = {
        "input_features": torch.zeros(1, frames, 12, dtype=torch.bfloat16),
        "input_features_mask": torch.ones(1, frames, dtype=torch.bool),
    }
    found = trained.seen(real, False, input_ids=ids, **inputs)
    convolved = trained.AUTOGRAD.changed(name="with taps", weights=MATMUL_KINDS | {"conv"})
    ours = sum(FlopCounter(SOUND, convolved, training=training).by_kind([ids.shape[1]], audios=[frames]).values())
    # 16 channels of 5 taps at 16 places, in each of two layers
    assert ours + taps * 2 * (2 * 16 * 5 * 16) * 15 == found.weights + found.mixers


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_size": 17}, "hidden_size: found 17, expected a multiple of num_attention_heads = 2"),
        ({"subsampling_conv_channels": [3, 6]}, r"subsampling_conv_channels: found \[3, 6\]"),
        ({"attention_context_left": 1}, "attention_context_left: found 1"),
    ],
)
def test_an_audio_tower_that_cannot_hear_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=f"audio_config.*{named}"):
        describe(SOUND | {"audio_config": HEARING | fields})


def test_sound_without_an_audio_tower_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="audios"):
        FlopCounter({"model_type": "gemma4", "text_config": TEXT})([10], audios=[100])


def test_samples_of_the_unified_model_pass_one_matrix() -> None:
    unified = FlopCounter({"model_type": "gemma4_unified", "text_config": TEXT, "audio_config": {}}, EAGER, "forward")
    assert unified([], audios=[7]) == 7 * 2 * 640 * 64


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"enable_moe_block": True}, "num_experts"),
        ({"enable_moe_block": True, "num_experts": 4, "moe_intermediate_size": 8, "top_k_experts": 5}, "top_k_experts"),
        ({"num_kv_shared_layers": 31}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 26}, "num_kv_shared_layers: found 26, which leaves a layer type without keys"),
        (
            {"per_layer_config": {"3": {"intermediate_size": 7}}},
            "per_layer_config: found intermediate_size = 7 of layer 3",
        ),
        ({"per_layer_config": [1]}, "per_layer_config"),
    ],
)
def test_a_contradiction_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe({"model_type": "gemma4_text", **fields})


@pytest.mark.parametrize("fields", [{}, {"num_hidden_layers": 7, "per_layer_config": {"6": {"head_dim": 64}}}])
def test_a_live_config_reads_as_its_file(fields: dict[str, Any]) -> None:
    from transformers import AutoConfig

    config = {"model_type": "gemma4_text", "global_head_dim": 128, **fields}
    live = AutoConfig.for_model("gemma4_text", **{key: value for key, value in config.items() if key != "model_type"})
    assert list(describe(live).parameters()) == list(describe(config).parameters())
    assert list(describe(live.to_dict()).parameters()) == list(describe(config).parameters())
