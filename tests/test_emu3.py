"""Emu3's VQ-VAE, whose parameters exist and whose work is not counted."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidBatch
from flopcalc.survey import build_with
from flopcalc.verify import verify


@pytest.mark.parametrize(
    "vq",
    [
        {"channel_multiplier": [1, 2], "hidden_size": 64, "attn_resolutions": [0, 1], "num_res_blocks": 1},
        {
            "double_latent": True,
            "temporal_downsample_factor": 2,
            "latent_channels": 8,
            "embed_dim": 3,
            "in_channels": 1,
        },
    ],
)
def test_altered_vq_vae_has_the_parameters_of_the_real_model(vq: dict[str, Any]) -> None:
    config = build_with("emu3") | {"text_config": {"num_hidden_layers": 1}}
    assert verify(config | {"vq_config": {"base_channels": 32} | vq}, lengths=()).parameters_equal


def test_images_are_tokens_of_the_text() -> None:
    with pytest.raises(InvalidBatch, match="images"):
        FlopCounter({"model_type": "emu3"})([10], images=[100])
