"""What no text forward pass shows of Gemma 4: its drafters, its tower, and configs that contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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


def test_the_sound_of_a_conformer_is_not_counted() -> None:
    audio = {"model_type": "gemma4", "text_config": TEXT, "audio_config": {"num_hidden_layers": 1}}
    assert describe(audio).num_params() > describe(audio | {"audio_config": None}).num_params()
    with pytest.raises(InvalidBatch, match="audios"):
        FlopCounter(audio)([10], audios=[100])
    unified = FlopCounter({"model_type": "gemma4_unified", "text_config": TEXT, "audio_config": {}}, EAGER, "forward")
    assert unified([], audios=[7]) == 7 * 2 * 640 * 64


HEARING = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "subsampling_conv_channels": [12, 6],
    "output_proj_dims": 24,
}
SOUND = {"model_type": "gemma4", "text_config": TEXT, "audio_config": HEARING, "audio_token_id": 73}


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
