"""ModernBERT, as the masked language model that it is and as a decoder: windows between layers of full
attention, gate and up in one matrix, a transform before the output matrix."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack, check_multiple, check_types, each, window
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, BidirectionalWindow, Span
from flopcalc.tree import Attention, Embedding, LayerNorm, Linear, Module, Node


class ModernBertConfig(Stack):
    vocab_size: Size = 50368
    hidden_size: Size = 768
    intermediate_size: Size = 1152
    num_hidden_layers: Count = 22
    num_attention_heads: Size = 12
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    classifier_bias: bool = False
    decoder_bias: bool = True
    local_attention: Count = 128
    layer_types: list[str] | None = None
    global_attn_every_n_layers: Size = legacy(3)
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.layer_types is None:
            full = [i % self.global_attn_every_n_layers == 0 for i in range(self.num_hidden_layers)]
            self.layer_types = ["full_attention" if is_full else "sliding_attention" for is_full in full]
        known = ("full_attention", "sliding_attention")
        check_types("layer_types", self.layer_types, self.num_hidden_layers, known)

    def span(self, kind: str) -> Span:
        """Half of the window stands on either side."""
        return BidirectionalWindow(self.local_attention // 2 + 1) if kind == "sliding_attention" else Bidirectional()

    def attention(self, span: Span) -> Module:
        hidden, heads, bias = self.hidden_size, self.num_attention_heads, self.attention_bias
        core = Attention(heads, hidden // heads, hidden // heads, span)
        return Module(Wqkv=Linear(hidden, 3 * hidden, bias), core=core, Wo=Linear(hidden, hidden, bias))


class ModernBertDecoderConfig(ModernBertConfig):
    local_attention: Count | None = 128
    sliding_window: Count | None = None

    def derive(self) -> None:
        super().derive()
        if self.sliding_window is None and self.local_attention:
            self.sliding_window = self.local_attention // 2
        if "sliding_attention" in (self.layer_types or []) and not self.sliding_window:
            raise ValueError(
                f"local_attention: found {self.local_attention}, expected twice the sliding layers' window"
            )

    def span(self, kind: str) -> Span:
        return window(self.sliding_window if kind == "sliding_attention" else None)

    def attention(self, span: Span) -> Module:
        return split_attention(self.hidden_size, self.num_attention_heads, span, bias=self.attention_bias, out="Wo")


def modernbert_lm(c: ModernBertConfig, transform: str) -> Module:
    """The skeleton: model, the `transform` under its name and the output matrix."""
    hidden = c.hidden_size

    def norm() -> Node:
        return LayerNorm(hidden, c.norm_bias)

    def layer(kind: tuple[bool, str]) -> Module:
        first, attends = kind
        return Module(
            attn_norm=None if first else norm(),  # the embeddings are normed already
            attn=c.attention(c.span(attends)),
            mlp_norm=norm(),
            mlp=Module(
                Wi=Linear(hidden, 2 * c.intermediate_size, c.mlp_bias),
                Wo=Linear(c.intermediate_size, hidden, c.mlp_bias),
            ),
        )

    tied_to = "model.embeddings.tok_embeddings.weight" if c.tie_word_embeddings else None
    return Module(
        model=Module(
            embeddings=Module(tok_embeddings=Embedding(c.vocab_size, hidden), norm=norm()),
            layers=each(layer, [(i == 0, kind) for i, kind in enumerate(c.layer_types or [])]),
            final_norm=norm(),
        ),
        **{transform: Module(dense=Linear(hidden, hidden, c.classifier_bias), norm=norm())},
        decoder=Linear(hidden, c.vocab_size, c.decoder_bias, kind="head", tied_to=tied_to),
    )


@register("modernbert", ModernBertConfig)
def modernbert(c: ModernBertConfig) -> Module:
    return modernbert_lm(c, "head")


@register("modernbert-decoder", ModernBertDecoderConfig)
def modernbert_decoder(c: ModernBertDecoderConfig) -> Module:
    return modernbert_lm(c, "lm_head")
