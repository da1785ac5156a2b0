"""MiniCPM3: DeepSeek's latent attention in a small dense model."""

from __future__ import annotations

from flopcalc.architectures.blocks import causal_lm, check_multiple, decoder_layer, mla, mlp
from flopcalc.architectures.deepseek import Latent
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class MiniCpm3Config(Latent):
    vocab_size: Size = 73448
    hidden_size: Size = 2560
    intermediate_size: Size = 6400
    num_hidden_layers: Count = 62
    num_attention_heads: Size = 40
    tie_word_embeddings: bool = True
    mlp_bias: bool = False
    q_lora_rank: Size | None = 768
    kv_lora_rank: Size = 256
    qk_nope_head_dim: Size = 64
    qk_rope_head_dim: Size = 32
    v_head_dim: Size | None = None

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.v_head_dim is None:
            self.v_head_dim = self.hidden_size // self.num_attention_heads


@register("minicpm3", MiniCpm3Config)
def minicpm3(c: MiniCpm3Config) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=mla(c, Full()),
        mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
