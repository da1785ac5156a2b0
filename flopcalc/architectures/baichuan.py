"""Decoders that are llama in shape, but for a detail each, as their published `modeling_*.py` state them:
Baichuan (queries, keys and values in one matrix), InternLM (biases in attention), MiniCPM (scaled, in
nothing but numbers), Orion (LayerNorms)."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, mlp
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, LayerNorm, Layers, Linear, Module


class BaichuanConfig(Decoder):
    vocab_size: Size = 125696

    def derive(self) -> None:
        self.num_key_value_heads = self.num_attention_heads
        super().derive()


@register("baichuan", BaichuanConfig)
def baichuan(c: BaichuanConfig) -> Module:
    hidden, heads = c.hidden_size, c.num_attention_heads
    self_attn = Module(
        W_pack=Linear(hidden, 3 * hidden),
        core=Attention(heads, c.head_dim, c.head_dim, Full()),
        o_proj=Linear(hidden, hidden),
    )
    layer = decoder_layer(hidden, self_attn=self_attn, mlp=mlp(hidden, c.intermediate_size))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class InternLmConfig(BaichuanConfig):
    vocab_size: Size = 103168
    bias: bool = True


@register("internlm", InternLmConfig)
def internlm(c: InternLmConfig) -> Module:
    self_attn = attention(c, Full(), bias=c.bias)
    layer = decoder_layer(c.hidden_size, self_attn=self_attn, mlp=mlp(c.hidden_size, c.intermediate_size))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class MiniCpmConfig(Decoder):
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    num_experts: Count = legacy(0)
    sparse_config: dict[str, object] | None = legacy()

    def derive(self) -> None:
        super().derive()
        for field in ("num_experts", "sparse_config"):
            if found := getattr(self, field):
                raise ValueError(f"{field}: found {found!r}, expected none: only the dense MiniCPM is described")


@register("minicpm", MiniCpmConfig)
def minicpm(c: MiniCpmConfig) -> Module:
    self_attn = attention(c, Full(), bias=c.attention_bias, o_bias=c.attention_bias)
    layer = decoder_layer(c.hidden_size, self_attn=self_attn, mlp=mlp(c.hidden_size, c.intermediate_size))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class OrionConfig(Decoder):
    vocab_size: Size = 84608
    hidden_size: Size = 5120
    intermediate_size: Size = 15360
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 40
    attention_bias: bool = False


@register("orion", OrionConfig)
def orion(c: OrionConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        norm=LayerNorm,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        mlp=mlp(c.hidden_size, c.intermediate_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=LayerNorm(c.hidden_size, kind="final_norm"))
