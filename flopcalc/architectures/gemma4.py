"""Gemma 4: full-attention layers with wider heads than the window layers, keys and values that later layers
reuse, an embedding of its own for every layer, and experts beside the dense MLP in some sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field

from flopcalc.architectures.blocks import (
    Multimodal,
    backbone,
    check_multiple,
    check_top_k,
    each,
    every_nth_full,
    experts,
    lm_head,
    mlp,
    multimodal_lm,
)
from flopcalc.architectures.gemma2 import sandwich_layer
from flopcalc.architectures.gemma3 import MaybeBidirectional
from flopcalc.architectures.towers import PATCHES, conformer_mlp, light_conv, near_attention, subsampling
from flopcalc.config import Count, Schema, Size, legacy
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, BlockContext, BlockPositions, Span
from flopcalc.tree import (
    Attention,
    Embedding,
    LayerNorm,
    Layers,
    Linear,
    Module,
    Node,
    Norm,
    Stream,
    Weight,
)


class Layer(NamedTuple):
    """What tells one layer from another."""

    kind: str
    head_dim: int
    kv_heads: int
    reuses: bool
    """Whether the keys and values are those of an earlier layer."""


class Gemma4Decoder(MaybeBidirectional):
    """Fields that the text models of Gemma 4 share."""

    vocab_size: Size = 262_144
    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Count = 30
    num_attention_heads: Size = 8
    num_key_value_heads: Size = 4
    head_dim: Size = 256
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Size = 512
    use_bidirectional_attention: Literal["all", "vision"] | None = None
    attention_k_eq_v: bool = False
    num_kv_shared_layers: Count = 0
    use_double_wide_mlp: bool = False
    global_head_dim: Size = legacy(512)
    num_global_key_value_heads: Size | None = legacy()
    layer_overrides: Any = Field(default=None, validation_alias="per_layer_config", exclude=True)
    spec: Any = Field(default=None, validation_alias="_heterogeneity_spec", exclude=True)
    """The overrides as live config objects keep them."""

    @property
    def bidirectional(self) -> bool:
        return self.use_bidirectional_attention == "all"

    def default_layer_types(self) -> list[str]:
        return every_nth_full(self.num_hidden_layers, 6)

    def derive(self) -> None:
        super().derive()
        if self.layer_types:
            self.layer_types = [*self.layer_types[:-1], "full_attention"]
        own, shared = self.layer_types[: self.num_hidden_layers - self.num_kv_shared_layers], self.num_kv_shared_layers
        if shared > self.num_hidden_layers:
            raise ValueError(f"num_kv_shared_layers: found {shared}, expected at most {self.num_hidden_layers}")
        if own and set(own) != set(self.layer_types):
            raise ValueError(f"num_kv_shared_layers: found {shared}, which leaves a layer type without keys to reuse")
        self.layers()

    def overrides(self) -> Mapping[int, Mapping[str, int]]:
        """What single layers have in place of the model's head_dim and num_key_value_heads."""
        given = self.layer_overrides if self.spec is None else getattr(self.spec, "per_layer_overrides", self.spec)
        if given is None:
            wide = {"head_dim": self.global_head_dim}
            if self.attention_k_eq_v and self.num_global_key_value_heads is not None:
                wide["num_key_value_heads"] = self.num_global_key_value_heads
            return {i: wide for i, kind in enumerate(self.layer_types) if kind == "full_attention"}
        try:
            read = {int(i): dict(fields) for i, fields in given.items()}
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"per_layer_config: found {given!r}, expected fields by number of layer") from None
        for i, fields in read.items():
            for name, value in fields.items():
                if name not in ("head_dim", "num_key_value_heads") or type(value) is not int or value < 1:
                    raise ValueError(
                        f"per_layer_config: found {name} = {value!r} of layer {i}, "
                        f"expected a head_dim or num_key_value_heads"
                    )
        return read

    def layers(self) -> list[Layer]:
        first_reuse, single = self.num_hidden_layers - self.num_kv_shared_layers, self.overrides()
        model = {"head_dim": self.head_dim, "num_key_value_heads": self.num_key_value_heads}
        fields = [model | dict(single.get(i, {})) for i in range(self.num_hidden_layers)]
        return [
            Layer(kind, own["head_dim"], own["num_key_value_heads"], i >= first_reuse)
            for i, (kind, own) in enumerate(zip(self.layer_types, fields, strict=True))
        ]


class Gemma4TextConfig(Gemma4Decoder):
    vocab_size_per_layer_input: Count = 262_144
    hidden_size_per_layer_input: Count = 256
    enable_moe_block: bool = False
    num_experts: Size | None = None
    top_k_experts: Size | None = None
    moe_intermediate_size: Size | None = None

    def derive(self) -> None:
        super().derive()
        if self.enable_moe_block:
            for name in ("num_experts", "top_k_experts", "moe_intermediate_size"):
                if getattr(self, name) is None:
                    raise ValueError(f"{name}: found None, expected a number, since enable_moe_block is true")
            check_top_k(self.top_k_experts, self.num_experts, "top_k_experts")


def reusing_attention(c: Any, at: Layer, span: Span, *, keys_are_values: bool = False) -> Module:
    """Attention with norms on the heads, whose keys and values may be those of an earlier layer."""
    hidden, heads, dim, bias = c.hidden_size, c.num_attention_heads, at.head_dim, c.attention_bias
    own: dict[str, Node] = {}
    if not at.reuses:
        own["k_proj"] = Linear(hidden, at.kv_heads * dim, bias)
        if not keys_are_values:
            own["v_proj"] = Linear(hidden, at.kv_heads * dim, bias)
        own["k_norm"] = Norm(dim, "head_norm", at.kv_heads)
    return Module(
        q_proj=Linear(hidden, heads * dim, bias),
        q_norm=Norm(dim, "head_norm", heads),
        **own,
        core=Attention(heads, dim, dim, span),
        o_proj=Linear(heads * dim, hidden, bias),
    ).reading("q_proj", "k_proj", "v_proj", q_norm="q_proj", k_norm="k_proj")


def layer(c: Gemma4Decoder, at: Layer) -> Module:
    """A layer without experts and without an embedding of its own."""
    width = c.intermediate_size * (2 if c.use_double_wide_mlp and at.reuses else 1)
    keys_are_values = c.attention_k_eq_v and at.kind == "full_attention"
    self_attn = reusing_attention(c, at, c.span(at.kind), keys_are_values=keys_are_values)
    return sandwich_layer(c.hidden_size, self_attn, mlp(c.hidden_size, width))


def text_layer(c: Gemma4TextConfig, at: Layer) -> Module:
    hidden = c.hidden_size
    built = layer(c, at)
    if c.enable_moe_block:
        router = Module(
            scale=Weight((hidden,)),
            proj=Linear(hidden, c.num_experts, kind="router"),
            per_expert_scale=Weight((c.num_experts,)),
        )
        sparse: dict[str, Node] = {
            "post_feedforward_layernorm_1": Norm(hidden),
            "router": router,
            "pre_feedforward_layernorm_2": Norm(hidden),
            "experts": experts(hidden, c.moe_intermediate_size, c.num_experts, c.top_k_experts),
            "post_feedforward_layernorm_2": Norm(hidden),
            "post_feedforward_layernorm": Norm(hidden),
        }
        built = built.replacing(post_feedforward_layernorm=sparse).reading(
            router="post_attention_layernorm", pre_feedforward_layernorm_2="post_attention_layernorm"
        )
    if own := c.hidden_size_per_layer_input:
        built = built.holding(
            per_layer_input_gate=Linear(hidden, own),
            per_layer_projection=Linear(own, hidden),
            post_per_layer_input_norm=Norm(hidden),
        )
    return built


def body(c: Gemma4TextConfig) -> Module:
    """The text model. What `per_layer_model_projection` makes of a token's embedding, and what the token's own
    vectors in `embed_tokens_per_layer` are, every layer multiplies by its gate."""
    layers, own = each(lambda at: text_layer(c, at), c.layers()), c.hidden_size_per_layer_input
    if not own:
        return backbone(c, layers)
    return Module(
        embed_tokens=Embedding(c.vocab_size, c.hidden_size),
        embed_tokens_per_layer=Embedding(c.vocab_size_per_layer_input, c.num_hidden_layers * own, kind="lookup"),
        per_layer_model_projection=Linear(c.hidden_size, c.num_hidden_layers * own),
        per_layer_projection_norm=Norm(own, vectors=c.num_hidden_layers),
        layers=layers,
        norm=Norm(c.hidden_size, "final_norm"),
    )


@register("gemma4_text", Gemma4TextConfig)
def gemma4_text(c: Gemma4TextConfig) -> Module:
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=body(c), lm_head=lm_head(c, tied_to))


class Gemma4VisionConfig(Schema):
    hidden_size: Size = 768
    intermediate_size: Size = 3072
    num_hidden_layers: Count = 16
    num_attention_heads: Size = 12
    num_key_value_heads: Size = 12
    head_dim: Size = 64
    pooling_kernel_size: Size = 3
    patch_size: Size = 16
    position_embedding_size: Size = 10 * 1024


class Gemma4AudioConfig(Schema):
    hidden_size: Size = 1024
    num_hidden_layers: Count = 12
    num_attention_heads: Size = 8
    subsampling_conv_channels: list[int] = Field(default=[128, 32], min_length=2, max_length=2)
    conv_kernel_size: Size = 5
    attention_chunk_size: Size = 12
    attention_context_left: Size = 13
    attention_context_right: Count = 0
    output_proj_dims: Size = 1536

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.subsampling_conv_channels[0] < 4:
            raise ValueError(
                f"subsampling_conv_channels: found {self.subsampling_conv_channels}, expected at least 4 channels in "
                f"the first, for each frequency that is left"
            )
        if self.attention_context_left < 2:
            raise ValueError(
                f"attention_context_left: found {self.attention_context_left}, expected at least 2: a token would not "
                f"read itself"
            )

    def spans(self) -> tuple[BlockContext, BlockPositions]:
        """What a token reads. The mask hides the token furthest away on either side, though blocks are multiplied with
        it (`sliding_window_mask_function`). Distances are none and half as many as a block meets; each pair counts as
        one with its distance, whether or not a config has one for it."""
        size, left, right = self.attention_chunk_size, self.attention_context_left - 1, self.attention_context_right
        context = size + left + right
        block = (size, left - 1, max(right - 1, 0))
        return BlockContext(*block, context), BlockPositions(*block, context // 2 + 1)


class Gemma4Config(Multimodal):
    tie_word_embeddings: bool = True
    text_config: Gemma4TextConfig = Field(default_factory=Gemma4TextConfig)
    vision_config: Gemma4VisionConfig | None = None
    audio_config: Gemma4AudioConfig | None = None


SOUND = Stream("audio", every=4, pad=3)
"""Frames of an audio, halved twice by convolutions that round up."""


def clipped(read: int, out: int) -> Module:
    """A matrix whose inputs and outputs are clipped to a range that the checkpoint says."""
    return Module(linear=Linear(read, out))


def vision_tower(c: Gemma4VisionConfig) -> Module:
    hidden, heads, kv_heads, dim = c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim
    self_attn = Module(
        q_proj=clipped(hidden, heads * dim),
        k_proj=clipped(hidden, kv_heads * dim),
        v_proj=clipped(hidden, kv_heads * dim),
        q_norm=Norm(dim, "head_norm", heads),
        k_norm=Norm(dim, "head_norm", kv_heads),
        core=Attention(heads, dim, dim, Bidirectional()),
        o_proj=clipped(heads * dim, hidden),
    ).reading("q_proj", "k_proj", "v_proj", q_norm="q_proj", k_norm="k_proj")
    gated = Module(
        gate_proj=clipped(hidden, c.intermediate_size),
        up_proj=clipped(hidden, c.intermediate_size),
        down_proj=clipped(c.intermediate_size, hidden),
    ).reading("gate_proj", "up_proj")
    return Module(
        patch_embedder=Module(
            position_embedding_table=Weight((2, c.position_embedding_size, hidden), "lookup"),
            input_proj=Linear(3 * c.patch_size**2, hidden, kind="patch_embedding"),
        ).reading("input_proj"),
        encoder=Module(layers=Layers([sandwich_layer(hidden, self_attn, gated)] * c.num_hidden_layers)),
    ).on(PATCHES)


def audio_tower(c: Gemma4AudioConfig) -> Module:
    """A conformer. No config says how many frequencies it hears: the matrix behind the convolutions, which leave a
    quarter of them, reads as many as a quarter of the first one's channels."""
    hidden, heads, left = c.hidden_size, c.num_attention_heads, c.subsampling_conv_channels[0] // 4
    convs = [(channels, (3, 3), (2, 2)) for channels in c.subsampling_conv_channels]
    context, positions = c.spans()
    self_attn = near_attention(hidden, heads, context, positions, place=("", "relative_k_proj"), matrix=clipped)
    layer = Module(
        feed_forward1=conformer_mlp(hidden, clipped),
        norm_pre_attn=Norm(hidden),
        self_attn=self_attn.holding(post=clipped(hidden, hidden)),
        norm_post_attn=Norm(hidden),
        lconv1d=light_conv(hidden, c.conv_kernel_size, clipped),
        feed_forward2=conformer_mlp(hidden, clipped),
        norm_out=Norm(hidden),
    )
    return Module(
        subsample_conv_projection=subsampling("layer", 4 * left, hidden, convs, lambda n: LayerNorm(n, bias=False)),
        layers=Layers([layer] * c.num_hidden_layers),
        output_proj=Linear(hidden, c.output_proj_dims, True),
    ).on(SOUND)


@register("gemma4", Gemma4Config)
def gemma4(c: Gemma4Config) -> Module:
    towers: dict[str, Node] = {}
    out = c.text_config.hidden_size
    if vision := c.vision_config:
        projection = Module(embedding_projection=Linear(vision.hidden_size, out))
        towers["vision_tower"] = vision_tower(vision)
        towers["embed_vision"] = projection.on(Stream("image", every=vision.pooling_kernel_size**2))
    if audio := c.audio_config:
        towers["audio_tower"] = audio_tower(audio)
        towers["embed_audio"] = Module(embedding_projection=Linear(audio.output_proj_dims, out)).on(SOUND)
    return multimodal_lm(c, body(c.text_config), **towers)


class Gemma4UnifiedTextConfig(Gemma4Decoder):
    sliding_window: Size = 1024
    use_bidirectional_attention: Literal["all", "vision"] | None = "vision"


def unified_body(c: Gemma4UnifiedTextConfig) -> Module:
    return backbone(c, each(lambda at: layer(c, at), c.layers()))


@register("gemma4_unified_text", Gemma4UnifiedTextConfig)
def gemma4_unified_text(c: Gemma4UnifiedTextConfig) -> Module:
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=unified_body(c), lm_head=lm_head(c, tied_to))


class Gemma4UnifiedVisionConfig(Schema):
    patch_size: Size = 16
    pooling_kernel_size: Size = 3
    mm_embed_dim: Size = 3840
    mm_posemb_size: Size = 1120
    output_proj_dims: Size = 3840


class Gemma4UnifiedAudioConfig(Schema):
    audio_embed_dim: Size = 640


class Gemma4UnifiedConfig(Multimodal):
    tie_word_embeddings: bool = True
    text_config: Gemma4UnifiedTextConfig = Field(default_factory=Gemma4UnifiedTextConfig)
    vision_config: Gemma4UnifiedVisionConfig | None = None
    audio_config: Gemma4UnifiedAudioConfig | None = None


@register("gemma4_unified", Gemma4UnifiedConfig)
def gemma4_unified(c: Gemma4UnifiedConfig) -> Module:
    """No tower: matrices alone turn merged patches, and the samples of 40 ms, into tokens."""
    embedders: dict[str, Node] = {}
    out = c.text_config.hidden_size
    if vision := c.vision_config:
        merged, width = vision.pooling_kernel_size**2, vision.mm_embed_dim
        pixels = 3 * merged * vision.patch_size**2
        embedders["embed_vision"] = Module(
            patch_ln1=LayerNorm(pixels),
            patch_dense=Linear(pixels, width, True, "patch_embedding"),
            patch_ln2=LayerNorm(width),
            pos_embedding=Weight((vision.mm_posemb_size, 2, width), "lookup"),
            pos_norm=LayerNorm(width),
            multimodal_embedder=Module(embedding_projection=Linear(vision.output_proj_dims, out)),
        ).on(Stream("image", every=merged))
    if audio := c.audio_config:
        embedders["embed_audio"] = Module(embedding_projection=Linear(audio.audio_embed_dim, out)).on(Stream("audio"))
    return multimodal_lm(c, unified_body(c.text_config), **embedders)
