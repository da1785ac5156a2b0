"""Step 3.5 Flash: windows with more heads than the full layers, a gate on each head, experts beside a
shared one in the layers that the config lists. Step 3.7 Flash has it behind a tower whose tokens two strided
convolutions merge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import (
    Multimodal,
    TypedDecoder,
    attention,
    backbone,
    causal_lm,
    check_multiple,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    mlp,
    moe,
    multimodal_lm,
    plain_mlp,
)
from flopcalc.architectures.towers import PATCHES, alone, split_attention
from flopcalc.config import Count, Schema, Size, aliases, legacy
from flopcalc.errors import InvalidOption
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.spans import Bidirectional
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Stream, Weight


class OtherAttention(Schema):
    """What the sliding layers have."""

    attention_type: Literal["sliding_attention"] = "sliding_attention"
    num_attention_heads: Size | None = None
    num_attention_groups: Size | None = None
    head_dim: Size | None = None


class Step3p5Config(TypedDecoder):
    vocab_size: Size = 128896
    intermediate_size: Size = 11264
    num_hidden_layers: Count = 45
    num_attention_heads: Size = 64
    num_key_value_heads: Size | None = aliases("num_attention_groups", "num_key_value_heads", default=8)
    head_dim: Size = 128
    sliding_window: Count | None = 512
    layer_types: list[str] | None = None
    num_sliding_attention_heads: Size | None = None
    attention_other_setting: OtherAttention | None = legacy()
    mlp_layer_types: list[str] | None = None
    moe_layers_enum: str | list[int] | None = legacy()
    n_routed_experts: Size = aliases("moe_num_experts", "n_routed_experts", "num_local_experts", default=288)
    num_experts_per_tok: Size = aliases("moe_top_k", "num_experts_per_tok", default=8)
    moe_intermediate_size: Size = 1280
    share_expert_dim: Size = 1280
    use_head_wise_attn_gate: bool = legacy(True)
    attention_bias: bool = False
    mlp_bias: bool = False
    num_nextn_predict_layers: Annotated[int, Field(ge=0, le=1000)] = aliases(
        "num_mtp_layers", "num_nextn_predict_layers", default=0
    )
    mtp_layer_types: list[str] | None = None
    mtp_mlp_layer_types: list[str] | None = None

    def default_sliding_heads(self) -> int | None:
        """Query heads of the sliding layers in a config that does not say."""
        return None

    def default_moe_layers(self) -> list[int] | None:
        """The layers with experts of a config that does not say."""
        return None

    def derive(self) -> None:
        layers = self.num_hidden_layers
        if self.layer_types is None:
            self.layer_types = ["full_attention"] * (layers + self.num_nextn_predict_layers)
        # the depths of multi-token prediction stand behind the layers
        self.mtp_layer_types = self.mtp_layer_types or self.layer_types[layers:] or None
        self.layer_types = self.layer_types[:layers]
        super().derive()
        other = self.attention_other_setting or OtherAttention()
        self.num_sliding_attention_heads = (
            self.num_sliding_attention_heads or other.num_attention_heads or self.default_sliding_heads()
        )
        if self.num_sliding_attention_heads is None:
            raise ValueError("attention_other_setting: found none, expected the heads of the sliding layers")
        depths = len(self.mtp_layer_types or [])
        if self.mlp_layer_types is None:
            listed = self.default_moe_layers() if self.moe_layers_enum is None else self.moe_layers_enum
            if listed is None:
                raise ValueError("moe_layers_enum: found none, expected the numbers of the layers with experts")
            sparse = set(listed) if isinstance(listed, list) else {int(i) for i in listed.split(",") if i.strip()}
            self.mlp_layer_types = ["sparse" if i in sparse else "dense" for i in range(layers + depths)]
        self.mtp_mlp_layer_types = self.mtp_mlp_layer_types or self.mlp_layer_types[layers:] or None
        self.mlp_layer_types = self.mlp_layer_types[:layers]
        check_types("mlp_layer_types", self.mlp_layer_types, layers, ("sparse", "dense"))
        check_types("mtp_layer_types", self.mtp_layer_types or [], None, self.known_layer_types)
        check_types("mtp_mlp_layer_types", self.mtp_mlp_layer_types or [], depths, ("sparse", "dense"))
        check_top_k(self.num_experts_per_tok, self.n_routed_experts, "moe_top_k")


Kind = tuple[str, str]


def layer(c: Step3p5Config, kind: Kind) -> Module:
    attends, mlp_type = kind
    hidden, sizes = c.hidden_size, c
    if attends == "sliding_attention":
        other = c.attention_other_setting or OtherAttention()
        sizes = c.model_copy(
            update={
                "num_attention_heads": c.num_sliding_attention_heads,
                "num_key_value_heads": other.num_attention_groups or c.num_key_value_heads,
                "head_dim": other.head_dim or c.head_dim,
            }
        )
    gate = Linear(hidden, sizes.num_attention_heads, kind="output_gate")
    self_attn = attention(
        sizes,
        c.span(attends),
        bias=c.attention_bias,
        qk_norm=True,
        after_core={"g_proj": gate} if c.use_head_wise_attn_gate else {},
    ).reading("g_proj")
    if mlp_type == "dense":
        return decoder_layer(hidden, self_attn=self_attn, mlp=mlp(hidden, c.intermediate_size, bias=c.mlp_bias))
    shared = mlp(hidden, c.share_expert_dim, bias=c.mlp_bias)
    routed = moe(hidden, c.moe_intermediate_size, c.n_routed_experts, c.num_experts_per_tok, shared_experts=shared)
    return decoder_layer(hidden, self_attn=self_attn, mlp=routed)


def stack(c: Step3p5Config) -> Layers:
    return each(lambda kind: layer(c, kind), zip(c.layer_types or [], c.mlp_layer_types or [], strict=True))


@register("step3p5", Step3p5Config)
def step3p5(c: Step3p5Config) -> Module:
    return causal_lm(c, stack(c))


@register_mtp("step3p5")
def step3p5_mtp(c: Step3p5Config) -> Module:
    kinds = set(zip(c.mtp_layer_types or [], c.mtp_mlp_layer_types or [], strict=True))
    if len(kinds) != 1:
        raise InvalidOption(
            f"mtp: found depths of {len(kinds)} kinds, expected the types of depths that are all alike behind "
            f"those of the layers in layer_types"
        )
    return next_token_depth(c.hidden_size, layer(c, kinds.pop()))


class Step3p7TextConfig(Step3p5Config):
    vocab_size: Size = 128815
    sliding_window: Count | None = None

    def default_sliding_heads(self) -> int | None:
        return self.num_attention_heads

    def default_moe_layers(self) -> list[int] | None:
        return list(range(3, self.num_hidden_layers))

    def derive(self) -> None:
        super().derive()
        self.use_head_wise_attn_gate = True


class Step3p7VisionConfig(Schema):
    hidden_size: Size = aliases("width", "hidden_size", default=1536)
    num_hidden_layers: Count = aliases("layers", "num_hidden_layers", default=47)
    num_attention_heads: Size = aliases("heads", "num_attention_heads", default=16)
    intermediate_size: Size = 8960
    mlp_ratio: float = Field(default=8960 / 1536, gt=0, le=1024)
    num_channels: Size = 3
    image_size: Size = 728
    patch_size: Size = 14

    def derive(self) -> None:
        self.intermediate_size = int(self.hidden_size * self.mlp_ratio)
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


class Step3p7Config(Multimodal):
    tie_word_embeddings: bool = legacy(False)  # no field of the class, which takes what a file says
    text_config: Step3p7TextConfig = Field(default_factory=Step3p7TextConfig)
    vision_config: Step3p7VisionConfig = Field(default_factory=Step3p7VisionConfig)
    projector_bias: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_flat_text(cls, fields: object) -> object:
        if isinstance(fields, dict) and fields.get("text_config") is None and "num_hidden_layers" in fields:
            raise ValueError(
                "text_config: found none beside num_hidden_layers, expected the language model's fields in it: "
                "transformers reads them nowhere else, and the query heads of the sliding layers "
                "(attention_other_setting) are known from there alone"
            )
        return fields


def tower(c: Step3p7VisionConfig) -> Module:
    width, heads, patch = c.hidden_size, c.num_attention_heads, (c.patch_size, c.patch_size)
    block = Module(
        layernorm_before=LayerNorm(width),
        self_attn=split_attention(width, heads, Bidirectional()),
        lambda_1=Weight((width,)),
        layernorm_after=LayerNorm(width),
        mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
        lambda_2=Weight((width,)),
    )
    places = (c.image_size // c.patch_size) ** 2
    return Module(
        embeddings=Module(
            patch_embedding=Conv(c.num_channels, width, patch, kind="patch_embedding"),
            position_embedding=Embedding(places, width, kind="lookup"),
        ),
        pre_layernorm=LayerNorm(width),
        layers=Layers([block] * c.num_hidden_layers),
        downsampler1=alone(Conv(width, 2 * width, (3, 3), True), Stream("image", every=4)),
        downsampler2=alone(Conv(2 * width, 4 * width, (3, 3), True), Stream("image", every=16)),
    ).on(PATCHES)


@register("step3p7", Step3p7Config)
def step3p7(c: Step3p7Config) -> Module:
    text, vision = c.text_config, c.vision_config
    projector = Linear(4 * vision.hidden_size, text.hidden_size, c.projector_bias)
    return multimodal_lm(
        c,
        backbone(text, stack(text)),
        vision_model=tower(vision),
        multi_modal_projector=alone(projector, Stream("image", every=16)),
    )


@register_mtp("step3p7")
def step3p7_mtp(c: Step3p7Config) -> Module:
    return step3p5_mtp(c.text_config)
