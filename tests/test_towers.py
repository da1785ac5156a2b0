"""Towers against the real ones: a tiny model is built on the CPU, its tower runs on two images of
different sizes, and our forward matmul FLOPs equal what the operator counter sees."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from flopcalc import FlopCounter, InvalidBatch, describe
from flopcalc.tree import MATMUL_KINDS
from flopcalc.verify import EAGER, operator_flops

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "num_experts": 4,
    "moe_intermediate_size": 24,
    "num_experts_per_tok": 2,
}
PATCH = {"depth": 3, "num_heads": 2, "in_channels": 3, "patch_size": 4, "temporal_patch_size": 2}
QWEN3 = PATCH | {
    "hidden_size": 16,
    "intermediate_size": 40,
    "out_hidden_size": 32,
    "num_position_embeddings": 64,
}
GRIDS = [(1, 4, 6), (2, 8, 10)]

TOWERS: dict[str, dict[str, Any]] = {
    "qwen2_vl": PATCH | {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 3},
    "qwen2_5_vl": PATCH
    | {
        "hidden_size": 16,
        "intermediate_size": 40,
        "out_hidden_size": 32,
        "window_size": 16,  # windows of 4 x 4 patches
        "fullatt_block_indexes": [1],
    },
    "qwen3_vl": QWEN3 | {"deepstack_visual_indexes": [0, 1]},
    "qwen3_vl_moe": QWEN3 | {"deepstack_visual_indexes": [0, 1]},
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
}


def tower_flops(config: dict[str, Any], images: list[tuple[int, int, int]]) -> tuple[int, int]:
    """Ours: (weight products, activation products) of the images alone."""
    by_kind = FlopCounter(config, EAGER, "forward").breakdown([], images=images).by_kind()
    weights = sum(flops for kind, flops in by_kind.items() if kind in MATMUL_KINDS)
    return weights, sum(by_kind.values()) - weights


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("model_type", TOWERS)
def test_patch_tower_runs_the_flops_that_we_count(model_type: str, grid: tuple[int, int, int]) -> None:
    config = {"model_type": model_type, "text_config": TEXT, "vision_config": TOWERS[model_type]}
    real = AutoConfig.for_model(model_type, text_config=dict(TEXT), vision_config=dict(TOWERS[model_type]))
    model = AutoModelForImageTextToText.from_config(real, attn_implementation="eager").eval()
    tower = model.model.visual
    patches = grid[0] * grid[1] * grid[2]
    pixels = torch.zeros(patches, 3 * 2 * 4 * 4)
    with torch.no_grad():
        seen = operator_flops(
            describe(config), tower, lambda: tower(pixels, grid_thw=torch.tensor([grid])), "model.visual"
        )
    assert seen == tower_flops(config, [grid])
    assert min(seen) > 0


@pytest.mark.parametrize("model_type", TOWERS)
def test_images_add_up_and_a_batch_without_images_has_no_tower_work(model_type: str) -> None:
    config = {"model_type": model_type, "text_config": TEXT, "vision_config": TOWERS[model_type]}
    counter = FlopCounter(config)
    text = counter([100, 7])
    first, second = (counter([100, 7], images=[grid]) - text for grid in GRIDS)
    assert first > 0
    assert counter([100, 7], images=GRIDS) == text + first + second
    assert counter([], images=GRIDS) == first + second
    assert counter([100, 7], images=[]) == text


def test_a12_images_attend_within_themselves() -> None:
    """Two images of 1024 patches against one of 2048: the same linear work, half the pairs."""
    counter = FlopCounter("Qwen/Qwen3-VL-8B-Instruct", "exact")
    two, one = (counter.breakdown([], images=images).by_kind() for images in ([1024, 1024], [2048]))
    layers, width = 27, 1152
    assert two["attention"] == layers * 12 * width * 2_097_152
    assert one["attention"] == layers * 12 * width * 4_194_304
    assert {k: v for k, v in two.items() if k != "attention"} == {k: v for k, v in one.items() if k != "attention"}
    assert counter([50]) == counter([50], images=[])
    assert counter([50, 60], images=[1024]) == counter([50, 60]) + counter([], images=[1024])


def test_windows_need_the_grid() -> None:
    counter = FlopCounter("Qwen/Qwen2.5-VL-3B-Instruct")
    with pytest.raises(InvalidBatch, match="height, width"):
        counter([10], images=[1024])
    assert counter([10], images=[(1, 32, 32)]) > counter([10])


@pytest.mark.parametrize("images", [[-4], [(1, 2)], [(1, -2, 2)], ["a"], 5, [1.5], [(1, 2.5, 2)]], ids=str)
def test_bad_images_are_named(images: Any) -> None:
    with pytest.raises(InvalidBatch, match="images"):
        FlopCounter("Qwen/Qwen3-VL-8B-Instruct")([10], images=images)
