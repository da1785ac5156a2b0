"""Cohere Compass: Cohere 2's layers, windows only where the config says so."""

from __future__ import annotations

from flopcalc.architectures.cohere2 import Cohere2Config, cohere2
from flopcalc.estimators import register


class CohereCompassTextConfig(Cohere2Config):
    def default_layer_types(self) -> list[str]:
        return ["full_attention"] * self.num_hidden_layers


register("cohere_compass_text", CohereCompassTextConfig)(cohere2)
