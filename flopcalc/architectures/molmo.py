"""Molmo: a decoder with fused projections behind CLIP's tower, of which two inner layers are read. Each token
of an image is the mean of four patches, which reads them. The tower's sizes stand in the published code, not in
the config."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import Decoder, check_multiple
from flopcalc.architectures.towers import PATCHES, PATCHES_AND_CLASS, alone, encoder_layers, split_attention
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, Full, Probe
from flopcalc.tree import Attention, LayerNorm, Layers, Linear, Module, Norm, Stream, Weight

WIDTH, INNER, LAYERS, LAYERS_READ, HEADS = 1024, 4096, 23, 22, 16
POSITIONS, PIXELS = 1 + 24**2, 3 * 14**2
"""Crops of 24 x 24 patches of 14 x 14 pixels, and a class token."""
FEATURES = 2 * WIDTH
NEW_WORDS = 128
MERGED = Stream("image", every=4)


class MolmoConfig(Decoder):
    vocab_size: Size
    embedding_size: Size | None = None
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Count
    num_attention_heads: Size
    qkv_bias: bool = False
    attention_layer_norm: bool = False
    norm_after: bool = False
    layer_norm_type: Literal["rms"] = "rms"
    weight_tying: Literal[False] = False

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.intermediate_size % 2:
            raise ValueError(
                f"intermediate_size: found {self.intermediate_size}, expected the even width of gate and up together"
            )
        self.embedding_size = self.embedding_size or self.vocab_size
        super().derive()


def block(c: MolmoConfig) -> Module:
    hidden, heads, dim = c.hidden_size, c.num_attention_heads, c.hidden_size // c.num_attention_heads
    keys = (c.num_key_value_heads or heads) * dim
    attn_norm, ff_norm = {"attn_norm": Norm(hidden)}, {"ff_norm": Norm(hidden)}
    return Module(
        **({} if c.norm_after else attn_norm),
        att_proj=Linear(hidden, hidden + 2 * keys, c.qkv_bias),
        q_norm=Norm(hidden, "head_norm") if c.attention_layer_norm else None,
        k_norm=Norm(keys, "head_norm") if c.attention_layer_norm else None,
        core=Attention(heads, dim, dim, Full()),
        attn_out=Linear(hidden, hidden),
        **(attn_norm if c.norm_after else ff_norm),
        ff_proj=Linear(hidden, c.intermediate_size),
        ff_out=Linear(c.intermediate_size // 2, hidden),
        **(ff_norm if c.norm_after else {}),
    ).reading(k_norm="att_proj")


def tower() -> Module:
    layer = Module(
        attention_norm=LayerNorm(WIDTH),
        attention=split_attention(WIDTH, HEADS, Bidirectional(), out="wo", names=("wq", "wk", "wv")),
        ffn_norm=LayerNorm(WIDTH),
        feed_forward=Module(w1=Linear(WIDTH, INNER, True), w2=Linear(INNER, WIDTH, True)),
    )
    return Module(
        class_embedding=Weight((WIDTH,)),
        positional_embedding=Weight((POSITIONS, WIDTH), "lookup"),
        patch_embedding=alone(Linear(PIXELS, WIDTH, kind="patch_embedding"), PATCHES),
        pre_ln=LayerNorm(WIDTH),
        transformer=Module(resblocks=encoder_layers(layer, LAYERS, LAYERS_READ)),
    ).on(PATCHES_AND_CLASS)


def vision_backbone(hidden: int, inner: int) -> Module:
    """The tower, attention that pools its patches, and a gated MLP on tokens; every patch is a key of one token."""
    read = Linear(FEATURES, WIDTH, True)
    pooling = Module(
        wq=alone(read, MERGED),
        wk=read,
        wv=read,
        core=Attention(HEADS, WIDTH // HEADS, WIDTH // HEADS, Probe()),
        wo=alone(Linear(WIDTH, WIDTH, True), MERGED),
    ).reading("wq", "wk", "wv")
    projector = Module(w1=Linear(WIDTH, inner), w3=Linear(WIDTH, inner), w2=Linear(inner, hidden))
    return Module(
        image_vit=tower(),
        pad_embed=Weight((2, FEATURES), "lookup"),
        image_pooling_2d=pooling,
        image_projector=projector.reading("w1", "w3").on(MERGED),
    ).on(PATCHES)


@register("molmo", MolmoConfig)
def molmo(c: MolmoConfig) -> Module:
    hidden, words = c.hidden_size, c.embedding_size or c.vocab_size
    transformer = Module(
        wte=Module(embedding=Weight((words, hidden), "embedding"), new_embedding=Weight((NEW_WORDS, hidden), "lookup")),
        blocks=Layers([block(c)] * c.num_hidden_layers),
        ln_f=Norm(hidden, "final_norm"),
        ff_out=Linear(hidden, words, kind="head"),
    )
    vision = vision_backbone(hidden, c.intermediate_size // 2)
    return Module(model=Module(vision_backbone=vision, transformer=transformer))
