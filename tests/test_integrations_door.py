"""What the callbacks share, without a trainer."""

from __future__ import annotations

import warnings

import pytest

import flopcalc
from flopcalc.integrations.door import Door

torch = pytest.importorskip("torch")

VL = "Qwen/Qwen2.5-VL-3B-Instruct"
TEXT = {"model_type": "llama"}


def opened(model, **options) -> Door:
    clock = iter(range(100))
    door = Door(None, {"peak_flops": 1e15, "clock": lambda: next(clock), **options})
    door.open(model)
    return door


def test_images_and_videos_are_counted_by_the_sizes_in_the_batch():
    door = opened(VL)
    images, videos = torch.tensor([[1, 8, 8], [1, 4, 12]]), torch.tensor([[3, 8, 8]])
    pixels = torch.zeros(1)
    door.watch({"input_ids": torch.ones(1, 200), "pixel_values": pixels, "image_grid_thw": images})
    door.watch({"input_ids": torch.ones(1, 90), "pixel_values_videos": pixels, "video_grid_thw": videos})
    door.watch({"input_ids": torch.ones(1, 50)})
    counter = flopcalc.FlopCounter(VL)
    expected = counter([200], [(1, 8, 8), (1, 4, 12)]) + counter([90], [(3, 8, 8)]) + counter([50])
    assert door.close()["perf/model_flops"] == expected


def test_media_of_unknown_size_are_warned_about_once():
    door = opened(TEXT)
    with pytest.warns(UserWarning, match="pixel_values of a size it does not say") as caught:
        for _ in range(2):
            door.watch({"input_ids": torch.ones(1, 20), "pixel_values": torch.zeros(1)})
    assert len(caught) == 1
    assert door.close()["perf/tokens"] == 40


def test_batches_are_read_in_bundles_before_the_interval_closes():
    door = opened(TEXT)
    for _ in range(200):
        door.watch({"input_ids": torch.ones(2, 4)})
    assert len(door._unread) < 64
    assert door.close()["perf/tokens"] == 1600


def test_a_group_that_failed_is_not_asked_again_and_costs_no_work():
    door = opened(TEXT)

    class Broken:
        def rank(self) -> int:
            return 0

    door.meter.group = Broken()
    door.watch({"input_ids": torch.ones(1, 9)})
    with pytest.raises((RuntimeError, ValueError)):
        door.close()
    assert door.close() == {}
    door.meter.group = None
    assert door.meter.step()["perf/tokens"] == 9


def test_a_batch_in_a_pause_is_not_counted():
    door = opened(TEXT)
    door.pause()
    door.watch({"input_ids": torch.ones(1, 9)})
    door.resume()
    door.watch({"input_ids": torch.ones(1, 5)})
    assert door.close()["perf/tokens"] == 5


def test_an_interval_that_closes_in_a_pause_holds_what_came_before():
    door = opened(TEXT)
    door.watch({"input_ids": torch.ones(1, 9)})
    door.pause()
    assert door.close()["perf/tokens"] == 9


def test_a_door_that_was_never_opened_does_nothing():
    door = Door(None, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        door.watch({})
        door.pause()
        door.resume()
        assert door.close() == {}
