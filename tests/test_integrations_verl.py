"""verl's contract: what its workers pass, and what they divide by."""

from __future__ import annotations

import math
import warnings

import pytest

import flopcalc
from flopcalc import InvalidBatch, InvalidOption, UnknownDevice, UnsupportedModel
from flopcalc.integrations.verl import FlopsCounter

LLAMA = {"model_type": "llama"}
# 6 * 6,607,343,616 weights and norms a token, dense pairs
FLOPS = 3584 * 6 * 6_607_343_616 + 12 * 32 * 4096 * (512**2 + 1024**2 + 2048**2)


def test_achieved_and_promised_are_in_tflop_per_second():
    achieved, promised = FlopsCounter(LLAMA, device="H100 SXM").estimate_flops([512, 1024, 2048], 2.0)
    assert achieved == pytest.approx(FLOPS / 2.0 / 1e12, rel=1e-15)
    assert promised == 989.5
    # how verl's workers make their metric of it, for 8 devices
    assert achieved / promised / 8 == pytest.approx(FLOPS / 2.0 / (8 * 989.5e12))


def test_the_counter_takes_what_verl_passes():
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    mask = torch.arange(2048) < torch.tensor([512, 1024, 2048])[:, None]
    counter = FlopsCounter(transformers.LlamaConfig(), peak_flops=1e12)
    for lengths in (mask.sum(-1).tolist(), mask.sum(-1), (512, 1024, 2048)):
        assert counter.estimate_flops(lengths, 1.0, images_seqlens=None)[0] == pytest.approx(FLOPS / 1e12)
        assert counter.estimate_flops(lengths, delta_time=1.0, images_seqlens=[], other=1)[1] == 1.0


def test_the_convention_can_be_chosen():
    exact = FlopsCounter(LLAMA, convention="exact", peak_flops=1e12).estimate_flops([256] * 4, 1.0)[0]
    assert exact * 1e12 == pytest.approx(1024 * 6 * 6_607_077_376 + 206_963_736_576)  # A1


def test_images_of_a_text_model_are_an_error_and_not_dropped():
    with pytest.raises(InvalidBatch, match="images"):
        FlopsCounter(LLAMA, peak_flops=1e12).estimate_flops([8], 1.0, images_seqlens=[1024])


def test_d2_an_unknown_type_raises_or_warns_once_and_is_never_zero():
    unknown = {"model_type": "llamma"}
    with pytest.raises(UnsupportedModel, match=r"'llamma'.*llama"):
        FlopsCounter(unknown, peak_flops=1e12)
    with pytest.warns(UserWarning, match="'llamma'") as caught:
        counter = FlopsCounter(unknown, peak_flops=1e12, errors="warn")
        answers = [counter.estimate_flops([8], 1.0) for _ in range(3)]
    assert len(caught) == 1
    assert all(math.isnan(achieved) and promised == 1.0 for achieved, promised in answers)


def test_an_unknown_device_promises_nan_with_a_warning():
    with pytest.warns(UserWarning, match="Foo Accelerator 7"):
        achieved, promised = FlopsCounter(LLAMA, device="Foo Accelerator 7").estimate_flops([512, 1024, 2048], 1.0)
    assert achieved == pytest.approx(FLOPS / 1e12)
    assert math.isnan(promised)
    with pytest.raises(UnknownDevice):
        FlopsCounter(LLAMA, device="H100")


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, True])
def test_a_time_that_is_none_is_named(seconds):
    with pytest.raises(InvalidOption, match="delta_time"):
        FlopsCounter(LLAMA, peak_flops=1e12).estimate_flops([8], seconds)
    counter = FlopsCounter(LLAMA, peak_flops=1e12, errors="warn")
    with pytest.warns(UserWarning, match="delta_time"):
        assert math.isnan(counter.estimate_flops([8], seconds)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(counter.estimate_flops([-8], 1.0)[0])
    assert counter.estimate_flops([8], 1.0)[0] == flopcalc.estimate_flops(LLAMA, [8]) / 1e12


def test_an_errors_option_that_does_not_exist_is_named():
    with pytest.raises(InvalidOption, match="errors"):
        FlopsCounter(LLAMA, errors="ignore")
