"""Emu3: a language model of text and of images that a VQ-VAE turned into tokens. The VQ-VAE is frozen and its
work, which no count of patches tells, is not counted; images are tokens of the text."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, attention, backbone, decoder_layer, lm_head, mlp
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.config import Repeats, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Node


class Emu3TextConfig(LlamaConfig):
    vocab_size: Size = 184622
    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8


class Emu3VQVAEConfig(Schema):
    codebook_size: Size = 32768
    embed_dim: Size = 4
    latent_channels: Size = 4
    double_latent: bool = False
    in_channels: Size = 3
    out_channels: Size = 3
    temporal_downsample_factor: Size = 4
    base_channels: Size = 256
    channel_multiplier: list[int] = Field(default=[1, 2, 2, 4], min_length=1)
    num_res_blocks: Repeats = 2
    attn_resolutions: list[int] = Field(default=[3])
    hidden_size: Size = 1024


class Emu3Config(Multimodal):
    text_config: Emu3TextConfig = Field(default_factory=Emu3TextConfig)
    vq_config: Emu3VQVAEConfig = Field(default_factory=Emu3VQVAEConfig)


def conv(read: int, out: int, size: int = 3) -> Conv:
    return Conv(read, out, (size, size), True)


def conv3d(read: int, out: int, kernel: tuple[int, int, int] = (3, 3, 3)) -> Module:
    return Module(conv=Conv(read, out, kernel, True))


def norm(width: int, quant: int | None) -> Node:
    """A group norm, in the decoder scaled and shifted by the quantized vector."""
    if quant is None:
        return LayerNorm(width)
    return Module(norm_layer=LayerNorm(width), conv_y=conv(quant, width, 1), conv_b=conv(quant, width, 1))


def resnet(read: int, out: int, quant: int | None) -> Module:
    return Module(
        norm1=norm(read, quant),
        conv1=conv(read, out),
        norm2=norm(out, quant),
        conv2=conv(out, out),
        nin_shortcut=conv(read, out, 1) if read != out else None,
    )


def attends(c: Emu3VQVAEConfig) -> Module:
    matrix = Linear(c.hidden_size, c.hidden_size, True)
    return Module(k_proj=matrix, v_proj=matrix, q_proj=matrix, out_proj=matrix)


def middle(c: Emu3VQVAEConfig, width: int, quant: int | None) -> Module:
    block = resnet(width, width, quant)
    return Module(block_1=block, attn_1=attends(c), attn_norm=norm(width, quant), block_2=block)


def level(c: Emu3VQVAEConfig, at: int, read: int, blocks: int, quant: int | None, **resample: Node | None) -> Module:
    out, focus = c.base_channels * c.channel_multiplier[at], blocks if at in c.attn_resolutions else 0
    return Module(
        block=Layers(resnet(out if i else read, out, quant) for i in range(blocks)),
        attn=Layers([attends(c)] * focus),
        attn_norms=Layers([norm(out, quant)] * focus),
        **resample,
    )


def temporal(width: int) -> Module:
    return Module(
        norm1=LayerNorm(width), conv1=conv3d(width, width), norm2=LayerNorm(width), conv2=conv3d(width, width)
    )


def vqvae(c: Emu3VQVAEConfig) -> Module:
    widths = [c.base_channels * factor for factor in c.channel_multiplier]
    levels, quant, latent = range(len(widths)), c.embed_dim, c.latent_channels
    out, times = latent * (2 if c.double_latent else 1), c.temporal_downsample_factor.bit_length() - 1
    resample = [Module(conv=conv(width, width)) for width in widths]
    down = [
        level(
            c,
            at,
            widths[at - 1] if at else c.base_channels,
            c.num_res_blocks,
            None,
            downsample=resample[at] if at != levels[-1] else None,
        )
        for at in levels
    ]
    up = [
        level(
            c,
            at,
            widths[min(at + 1, levels[-1])],
            c.num_res_blocks + 1,
            quant,
            upsample=resample[at] if at else None,
        )
        for at in levels
    ]
    encoder = Module(
        conv_in=conv(c.in_channels, c.base_channels),
        down_block=Module(down=Layers(down)),
        middle_block=middle(c, widths[-1], None),
        norm_out=LayerNorm(widths[-1]),
        conv_out=conv(widths[-1], out),
        time_conv=Layers([Module(conv=conv3d(out, out, (4, 3, 3)))] * times),
        time_res_stack=Layers([temporal(out)] * c.num_res_blocks),
    )
    decoder = Module(
        time_res_stack=Layers([temporal(latent)] * c.num_res_blocks),
        time_conv=Layers([Module(conv=conv3d(latent, latent))] * times),
        conv_in=conv(latent, widths[-1]),
        middle_block=middle(c, widths[-1], quant),
        up_block=Module(up=Layers(up)),
        norm_out=norm(widths[0], quant),
        conv_out=conv(widths[0], c.out_channels),
    )
    return Module(
        encoder=encoder,
        decoder=decoder,
        quantize=Module(embedding=Embedding(c.codebook_size, quant, kind="lookup")),
        quant_conv=conv3d(latent, quant, (3, 1, 1)),
        post_quant_conv=conv3d(quant, latent, (3, 1, 1)),
    ).never_run()


@register("emu3", Emu3Config)
def emu3(c: Emu3Config) -> Module:
    text = c.text_config
    layer = decoder_layer(
        text.hidden_size,
        self_attn=attention(text, Full(), bias=text.attention_bias),
        mlp=mlp(text.hidden_size, text.intermediate_size, bias=text.mlp_bias),
    )
    text_model = backbone(text, Layers([layer] * text.num_hidden_layers))
    tied_to = "model.text_model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=Module(vqmodel=vqvae(c.vq_config), text_model=text_model), lm_head=lm_head(text, tied_to))
