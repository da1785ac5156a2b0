"""Models that see and hear, against the real ones: small models are built on the CPU, their towers run, and
our forward matmul FLOPs equal what the operator counter sees."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_towers import counted, real_model, seen

from flopcalc import InvalidConfig, describe

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
