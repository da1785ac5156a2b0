"""Phi-4 multimodal: Phi-3's text model, which looks through SigLIP's tower at an image cut into crops and at
the whole of it, and listens through a conformer."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, with_head
from flopcalc.architectures.phi3 import Phi3Config, phi3_layers
from flopcalc.architectures.siglip import pooling_head, siglip_tower
from flopcalc.architectures.towers import ViT, alone, split_attention
from flopcalc.config import Count, Repeats, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import BidirectionalChunk
from flopcalc.tree import Conv, Conv1d, Embedding, LayerNorm, Layers, Linear, Module, Norm, Stream, Weight

WITH_POSITIONS = 500
"""Tokens of an audio that attend to each other; a longer one is cut."""


class Phi4VisionConfig(ViT):
    hidden_size: Size = 1152
    intermediate_size: Size = 4304
    num_hidden_layers: Count = 27
    num_attention_heads: Size = 16
    image_size: Size = 448
    patch_size: Size = 14
    crop_size: Size = 448
    feature_layer: int = -2

    def derive(self) -> None:
        if self.side % 2 or not self.side:
            raise ValueError(
                f"crop_size: found {self.crop_size}, expected an even number of patches of {self.patch_size}"
            )
        depth = self.num_hidden_layers
        if not -depth - 1 <= self.feature_layer <= depth:
            raise ValueError(f"feature_layer: found {self.feature_layer}, expected a layer of the tower's {depth}")

    @property
    def side(self) -> int:
        """Patches that a crop is high and wide."""
        return self.crop_size // self.patch_size


class Phi4AudioConfig(Schema):
    hidden_size: Size = 1024
    intermediate_size: Size = 1536
    num_blocks: Repeats = 24
    num_attention_heads: Size = 16
    ext_pw_out_channel: Size = 1024
    depthwise_separable_out_channel: Size = 1024
    depthwise_multiplier: Size = 1
    kernel_size: Size = 3
    input_size: Size = 80
    time_reduction: Size = 8
    bias_max_distance: Size = 1000
    bias_symmetric: bool = False
    nemo_conv_channels: Size = 1024
    downsample_rate: Size = 1

    def derive(self) -> None:
        if self.time_reduction % 2:
            raise ValueError(f"time_reduction: found {self.time_reduction}, expected a multiple of 2")


class Phi4MultimodalConfig(Multimodal, Phi3Config):
    vocab_size: Size = 200064
    num_key_value_heads: Size | None = 8
    vision_config: Phi4VisionConfig = Field(default_factory=Phi4VisionConfig)
    audio_config: Phi4AudioConfig = Field(default_factory=Phi4AudioConfig)


AT = "model.embed_tokens_extend.image_embed"


def image_embed(c: Phi4VisionConfig, hidden: int) -> Module:
    """SigLIP's tower reads each crop of an image by itself and the whole image as one more. Crops are then put
    together, four patches pooled into a token, each row of tokens and the whole ended by one more."""
    width, crop = c.hidden_size, c.side**2
    crops = Stream("image", extra=crop)
    head = pooling_head(c, f"{AT}.img_processor.head", Stream("image", every=crop, extra=1))
    tower = siglip_tower(c, c.feature_layer % (c.num_hidden_layers + 1), BidirectionalChunk(crop), head=head)
    tokens = Stream("image", every=4, extra=c.side // 2 * (c.side // 2 + 1) + 1, row=2)
    projected = Module(
        global_img_feature_extensor=Weight((1, 1, width)),
        sub_img_feature_extensor=Weight((1, 1, 1, width)),
        img_projection_up=Linear(width, hidden, True),
        img_projection_down=Linear(hidden, hidden, True),
    )
    return Module(img_processor=tower.on(crops), **{"": projected.on(tokens)})


def conformer(c: Phi4AudioConfig, span: BidirectionalChunk) -> Module:
    """A layer: attention and a convolution between two halves of an MLP."""
    width, wide = c.hidden_size, c.hidden_size * c.depthwise_multiplier
    feed_forward = Module(
        layer_norm=LayerNorm(width),
        gate_up_proj=Linear(width, 2 * c.intermediate_size, True),
        down_proj=Linear(c.intermediate_size, width, True),
    )
    gate = Weight((1, c.ext_pw_out_channel, 1), "bias")
    conv = Module(
        layer_norm=LayerNorm(width),
        glu=Module(ext_pw_conv_1d=Conv(width, 2 * c.ext_pw_out_channel, (1,), True), b1=gate, b2=gate),
        dw_sep_conv_1d=Module(
            dw_conv=Conv1d(wide, c.kernel_size, True),
            pw_conv=Conv(wide, c.depthwise_separable_out_channel, (1,), True),
        ),
        ext_pw_conv_1d=Conv(width, c.ext_pw_out_channel, (1,), True),
    )
    return Module(
        feed_forward_in=feed_forward,
        layer_norm_att=LayerNorm(width),
        self_attn=split_attention(width, c.num_attention_heads, span, out="o_proj"),
        conv=conv,
        feed_forward_out=feed_forward,
        layer_norm=LayerNorm(width),
    )


def subsampling(c: Phi4AudioConfig, halvings: int) -> Module:
    """Convolutions of which each halves frames and frequencies, rounded up; all but the first in two parts."""
    channels = c.nemo_conv_channels

    def halved(times: int) -> Stream:
        return Stream("audio", every=2**times, pad=2**times - 1, rows=-(-c.input_size // 2**times))

    layers = {"0": alone(Conv(1, channels, (3, 3), True), halved(1))}
    for i in range(1, halvings):
        layers[f"{3 * i - 1}"] = alone(Conv(1, channels, (3, 3), True, kind="conv"), halved(i + 1))
        layers[f"{3 * i}"] = alone(Conv(channels, channels, (1, 1), True), halved(i + 1))
    return Module(conv=Module(**layers), out=Linear(channels * halved(halvings).rows, c.hidden_size, True))


def audio_embed(c: Phi4AudioConfig, hidden: int) -> Module:
    """The conformer. Its projections are of two kinds: those beside images are of the same sizes, so that an
    audio costs as much through either and is counted through the others."""
    halvings = c.time_reduction.bit_length() - 1
    layer = conformer(c, BidirectionalChunk(WITH_POSITIONS))
    up = Linear(c.hidden_size * c.downsample_rate, hidden, True)
    down = Linear(hidden, hidden, True)
    buckets = c.bias_max_distance * (1 if c.bias_symmetric else 2)
    encoder = Module(
        embed=subsampling(c, halvings),
        relative_attention_bias_layer=Module(bias_values=Embedding(buckets, c.num_attention_heads, kind="lookup")),
        encoders=Layers([layer] * c.num_blocks),
    )
    return Module(
        encoder=encoder,
        up_proj_for_speech=up,
        down_proj_for_speech=down,
        **{"": Module(up_proj_for_vision_speech=up, down_proj_for_vision_speech=down).never_run()},
    ).on(Stream("audio", every=2**halvings, pad=2**halvings - 1))


@register("phi4_multimodal", Phi4MultimodalConfig)
def phi4_multimodal(c: Phi4MultimodalConfig) -> Module:
    """Images are (1, height, width) in patches of the crops that they are cut into."""
    hidden = c.hidden_size
    body = Module(
        embed_tokens=Embedding(c.vocab_size, hidden),
        embed_tokens_extend=Module(
            image_embed=image_embed(c.vision_config, hidden), audio_embed=audio_embed(c.audio_config, hidden)
        ),
        layers=phi3_layers(c),
        norm=Norm(hidden, "final_norm"),
    )
    return with_head(c, body)
