"""BLT: bytes pass a local encoder, patches of them a global transformer, bytes again a local decoder; bytes
and patches meet by cross-attention inside each patch, and a language model of its own says where patches
begin."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, attention, check_multiple, decoder_layer, mlp, window
from flopcalc.architectures.towers import alone
from flopcalc.config import Count, Schema, Size, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full, OwnPatch, Span
from flopcalc.tree import TEXT, Attention, Embedding, Layers, Linear, Module, Node, Norm, Stream


class BltPart(Schema):
    """Fields that the four stacks of layers have."""

    hidden_size: Size = 1024
    intermediate_size: Size | None = None
    num_hidden_layers: Count = 1
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = None

    def derive(self) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        check_multiple("num_attention_heads", self.num_attention_heads, "num_key_value_heads", self.num_key_value_heads)
        self.intermediate_size = self.intermediate_size or 8 * self.hidden_size // 3

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class BltPatcherConfig(BltPart):
    vocab_size: Size = 260
    hidden_size: Size = 768
    intermediate_size: Size | None = 2048
    num_hidden_layers: Count = 14
    num_attention_heads: Size = 12
    sliding_window: Size | None = 512


class BltLocalEncoderConfig(BltPart):
    vocab_size: Size = 260
    num_hidden_layers: Size = 1
    cross_attn_all_layers: bool | None = False
    cross_attn_k: Size = 2


class BltLocalDecoderConfig(BltPart):
    intermediate_size: Size | None = 2816
    num_hidden_layers: Size = 9
    cross_attn_all_layers: bool | None = True
    cross_attn_k: Size = 2
    hidden_size_global: Size = 2048


class BltGlobalTransformerConfig(BltPart):
    hidden_size: Size = 2048
    intermediate_size: Size | None = 5632
    num_hidden_layers: Count = 25


class BltConfig(Multimodal):
    """transformers' fields, and `bytes_per_patch`, the mean length of a patch, which no config says."""

    vocab_size: Size = 260
    patch_in_forward: bool | None = True
    patch_size: int | None = 4
    patching_mode: str | None = "entropy"
    local_attention_window_len: Size | None = 512
    cross_attn_k: Size = 2
    encoder_hash_byte_group_size: list[int] | None = None
    encoder_hash_byte_group_vocab: Count = 500002
    encoder_hash_byte_group_nb_functions: Count = 1
    patcher_config: BltPatcherConfig = Field(default_factory=BltPatcherConfig)
    encoder_config: BltLocalEncoderConfig = Field(default_factory=BltLocalEncoderConfig)
    decoder_config: BltLocalDecoderConfig = Field(default_factory=BltLocalDecoderConfig)
    global_config: BltGlobalTransformerConfig = Field(default_factory=BltGlobalTransformerConfig)
    bytes_per_patch: Annotated[float, Field(ge=1, le=1e6)] | None = legacy()

    def derive(self) -> None:
        self.encoder_hash_byte_group_size = self.encoder_hash_byte_group_size or [3, 4, 5, 6, 7, 8]
        encoder, decoder = self.encoder_config, self.decoder_config
        pairs = (
            ("encoder_config.cross_attn_k", encoder.cross_attn_k, "cross_attn_k", self.cross_attn_k),
            ("decoder_config.cross_attn_k", decoder.cross_attn_k, "cross_attn_k", self.cross_attn_k),
            ("decoder_config.hidden_size", decoder.hidden_size, "encoder_config.hidden_size", encoder.hidden_size),
            (
                "decoder_config.hidden_size_global", decoder.hidden_size_global,
                "global_config.hidden_size", self.global_config.hidden_size,
            ),
        )  # fmt: skip
        for field, found, other, expected in pairs:
            if found != expected:
                raise ValueError(f"{field}: found {found}, expected {other} = {expected}")

    @property
    def patches_itself(self) -> bool:
        """Whether the patcher runs."""
        return bool(self.patch_in_forward) and self.patching_mode == "entropy"

    def patches(self) -> Stream:
        """The patches of n bytes. Without the patcher, the code makes n + 1 patches of a byte; with it and no
        patch_size, n; else the patcher cuts where a byte is hard to foresee."""
        if not self.patches_itself:
            return Stream(extra=1)
        if self.patch_size is None:
            return Stream()
        if self.bytes_per_patch is None:
            return Stream(
                unknown="blt config: patching_mode: found 'entropy', which begins a patch at each byte that is hard to "
                "foresee, so the number of patches follows from the text, not from its length; add bytes_per_patch to "
                "the config, the mean length of your patches in bytes"
            )
        mean = Fraction(round(self.bytes_per_patch * 1000), 1000)
        return Stream(every=mean.numerator, per=mean.denominator, pad=mean.numerator - 1)


def layer(c: BltPart, span: Span) -> Module:
    return decoder_layer(c.hidden_size, self_attn=attention(c, span), mlp=mlp(c.hidden_size, c.intermediate_size or 0))


def cross_attention(c: BltPart, queries: Stream, keys: Stream, patches: Stream, **sources: str) -> Module:
    """Attention between bytes and the vectors of their own patch; either may be the queries. The `sources` are
    those of norms that do not read the module's own input."""
    hidden, heads, dim = c.hidden_size, c.num_attention_heads, c.head_dim
    kv_width = (c.num_key_value_heads or heads) * dim
    return Module(
        q_norm=alone(Norm(hidden), queries),
        q_proj=alone(Linear(hidden, heads * dim), queries),
        k_norm=alone(Norm(hidden), keys),
        k_proj=alone(Linear(hidden, kv_width), keys),
        v_proj=alone(Linear(hidden, kv_width), keys),
        core=Attention(heads, dim, dim, OwnPatch(patches)),
        o_proj=alone(Linear(heads * dim, hidden), queries),
    ).reading("q_norm", "k_norm", **{"q_proj": "q_norm", "k_proj": "k_norm", "v_proj": "k_norm", **sources})


def local_encoder(
    c: BltLocalEncoderConfig, vocab: int, span: Span, patches: Stream, vectors: Stream
) -> dict[str, Node]:
    """What bytes pass, and what makes patches of them: each begins as the largest of its bytes' numbers, becomes
    `vectors` and reads its bytes. With cross-attention in all layers, what all but the last find is thrown away."""
    name, last = "local_encoder.patch_embedding_projection", c.num_hidden_layers - 1
    projection = alone(Linear(c.hidden_size, c.hidden_size * c.cross_attn_k), patches)
    again, reads = projection.sharing(f"model.{name}"), cross_attention(c, vectors, TEXT, vectors, q_norm=name)
    passed: dict[str, Node] = {"embed_tokens": Embedding(vocab, c.hidden_size)}
    for i in range(c.num_hidden_layers):
        passed[f"layers.{i}"] = layer(c, span)
        if c.cross_attn_all_layers and i < last:
            passed[f"patch_embedding_projection_{i}"] = again.without_grad()
            passed[f"cross_attn_layers.{i}"] = reads.without_grad()
    index = last if c.cross_attn_all_layers else 0
    return {"local_encoder": Module(**passed), name: projection, f"local_encoder.cross_attn_layers.{index}": reads}


def local_decoder(c: BltLocalDecoderConfig, span: Span, patches: Stream, vectors: Stream) -> Module:
    """What comes out of the encoder reads its patch before each layer, or before the first."""
    name = "patch_embedding_projection"
    reads = cross_attention(c, TEXT, vectors, vectors, k_norm=name)
    children: dict[str, Node] = {name: alone(Linear(c.hidden_size_global, c.hidden_size * c.cross_attn_k), patches)}
    for i in range(c.num_hidden_layers):
        if i == 0 or c.cross_attn_all_layers:
            children[f"cross_attn_layers.{i}"] = reads
        children[f"layers.{i}"] = layer(c, span)
    return Module(**children, norm=Norm(c.hidden_size, "final_norm")).reading(
        **{"cross_attn_layers.0": "local_encoder"}
    )


def patcher(c: BltPatcherConfig) -> Module:
    """The model whose entropies say where patches begin: never trained with the others."""
    return Module(
        embed_tokens=Embedding(c.vocab_size, c.hidden_size, kind="lookup"),
        layers=Layers([layer(c, window(c.sliding_window))] * c.num_hidden_layers),
        norm=Norm(c.hidden_size),
        lm_head=Linear(c.hidden_size, c.vocab_size),
    ).without_grad()


@register("blt", BltConfig)
def blt(c: BltConfig) -> Module:
    encoder, decoder, latent, patches = c.encoder_config, c.decoder_config, c.global_config, c.patches()
    vectors = replace(patches, rows=c.cross_attn_k, extra=patches.extra * c.cross_attn_k)
    span = window(c.local_attention_window_len)
    entered = encoder.hidden_size * c.cross_attn_k
    tables = c.encoder_hash_byte_group_nb_functions * len(c.encoder_hash_byte_group_size or [])
    foresight = patcher(c.patcher_config) if c.patches_itself else patcher(c.patcher_config).never_run()
    vocab = c.vocab_size if c.tie_word_embeddings else encoder.vocab_size
    encoder_parts = local_encoder(encoder, vocab, span, patches, vectors)
    model = Module(
        patcher=foresight if c.patch_in_forward else None,
        encoder_hash_tok_embedding=Embedding(
            c.encoder_hash_byte_group_vocab * tables, encoder.hidden_size, kind="lookup"
        ),
        **encoder_parts,
        global_transformer=Module(
            token_embedding_projection=Linear(entered, latent.hidden_size) if entered != latent.hidden_size else None,
            layers=Layers([layer(latent, Full())] * latent.num_hidden_layers),
        ).on(patches),
        local_decoder=local_decoder(decoder, span, patches, vectors),
    ).reading(**{list(encoder_parts)[-1]: "local_encoder"})
    tied_to = "model.local_encoder.embed_tokens.weight" if c.tie_word_embeddings else None
    head = Linear(decoder.hidden_size, c.vocab_size, kind="head", tied_to=tied_to)
    return Module(model=model, lm_head=head)
