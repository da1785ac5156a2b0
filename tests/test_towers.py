"""Towers against the real ones: a tiny model is built on the CPU, its tower runs on two images of
different sizes, and our forward matmul FLOPs equal what the operator counter sees."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
GLM = PATCH | {"hidden_size": 16, "intermediate_size": 40, "out_hidden_size": 32, "image_size": 24}
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
    "glm4v": GLM,
    "glm4v_moe": GLM,
    "glm46v": GLM,
}


def whole(model_type: str) -> dict[str, Any]:
    text = TEXT | ({"n_routed_experts": 4} if model_type == "glm4v_moe" else {})
    return {"model_type": model_type, "text_config": text, "vision_config": TOWERS[model_type]}


def real_model(config: dict[str, Any]) -> Any:
    """The whole model on the CPU."""
    fields = copy.deepcopy(config)
    real = AutoConfig.for_model(fields.pop("model_type"), **fields)
    return AutoModelForImageTextToText.from_config(real, attn_implementation="eager").eval()


def seen(config: dict[str, Any], path: str, model: Any, run: Callable[[Any], Any]) -> tuple[int, int]:
    """(weight products, activation products) that the part of the model under `path` runs."""
    part = model.get_submodule(path)
    with torch.no_grad():
        return operator_flops(describe(config), part, lambda: run(part), path)


def counted(config: dict[str, Any], **media: Any) -> tuple[int, int]:
    """Ours: (weight products, activation products) of images or audios alone."""
    by_kind = FlopCounter(config, EAGER, "forward").breakdown([], **media).by_kind()
    weights = sum(flops for kind, flops in by_kind.items() if kind in MATMUL_KINDS)
    return weights, sum(by_kind.values()) - weights


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("model_type", TOWERS)
def test_patch_tower_runs_the_flops_that_we_count(model_type: str, grid: tuple[int, int, int]) -> None:
    config = whole(model_type)
    pixels = torch.zeros(grid[0] * grid[1] * grid[2], 3 * 2 * 4 * 4)
    frames, height, width = grid
    video_by_frames = model_type.startswith("glm")  # as its get_video_features passes them
    grids = torch.tensor([(1, height, width)] * frames if video_by_frames else [grid])
    ran = seen(config, "model.visual", real_model(config), lambda tower: tower(pixels, grid_thw=grids))
    assert ran == counted(config, images=[grid])
    assert min(ran) > 0


@pytest.mark.parametrize("model_type", TOWERS)
def test_images_add_up_and_a_batch_without_images_has_no_tower_work(model_type: str) -> None:
    counter = FlopCounter(whole(model_type))
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
