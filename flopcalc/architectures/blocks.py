"""Blocks that several families share. They state shapes; what a shape costs stands in `counting.py`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import model_validator

from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import find_part
from flopcalc.spans import Full, Span, Window
from flopcalc.tree import (
    Attention,
    Conv1d,
    Embedding,
    LayerNorm,
    Layers,
    Linear,
    Mamba,
    Mamba2,
    Module,
    Node,
    Norm,
    Routed,
    Weight,
)

__all__ = [
    "Decoder",
    "FlatMultimodal",
    "Multimodal",
    "Nested",
    "Part",
    "SparseLayers",
    "Stack",
    "TypedDecoder",
    "attention",
    "backbone",
    "causal_lm",
    "check_multiple",
    "check_top_k",
    "check_types",
    "decoder_layer",
    "dense_or_sparse",
    "each",
    "every_nth_full",
    "experts",
    "fc_layer",
    "leading_dense",
    "mla",
    "mlp",
    "fused_mlp",
    "lm_head",
    "mamba",
    "mamba2",
    "moe",
    "multimodal_lm",
    "part",
    "plain_mlp",
    "router",
    "shared_moe",
    "window",
]

K = TypeVar("K", bound=Hashable)

if TYPE_CHECKING:
    Part = Any  # it has the fields of the type that it turns out to be
else:
    Part = Schema

LEGACY_LAYER_TYPES = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}
"""Layer types as older published files spell them (transformers' `remap_legacy_layer_types`)."""


class Stack(Schema):
    """Fields that every stack of layers has. A family overrides the defaults."""

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 32
    tie_word_embeddings: bool = False


class Decoder(Stack):
    """A decoder with grouped-query attention. A family overrides the defaults."""

    num_key_value_heads: Size | None = None
    head_dim: Size | None = None

    def derive(self) -> None:
        super().derive()
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads


class TypedDecoder(Decoder):
    """A decoder whose `layer_types` says what each layer attends to."""

    known_layer_types: ClassVar[tuple[str, ...]] = ("full_attention", "sliding_attention")

    layer_types: list[str] | None = None
    sliding_window: Count | None = None

    def default_layer_types(self) -> list[str]:
        """The pattern of a config that has no `layer_types`."""
        return ["full_attention"] * self.num_hidden_layers

    def derive(self) -> None:
        super().derive()
        if self.layer_types is None:
            self.layer_types = self.default_layer_types()
        self.layer_types = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.layer_types]
        check_types("layer_types", self.layer_types, self.num_hidden_layers, self.known_layer_types)
        if "sliding_attention" in self.layer_types and not self.sliding_window:
            raise ValueError(f"sliding_window: found {self.sliding_window}, expected the window of the sliding layers")

    def span(self, kind: str) -> Span:
        """What a layer of this type attends to."""
        return window(self.sliding_window) if kind == "sliding_attention" else Full()


class SparseLayers(Stack):
    """A stack whose `mlp_layer_types` says which layers are dense and which are sparse (routed to
    experts). As a base it stands last, so that its defaults are the weakest."""

    leading_dense: ClassVar[int] = 0

    mlp_layer_types: list[str] | None = None

    def default_mlp_layer_types(self) -> list[str]:
        """The pattern of a config without the field; `first_k_dense_replace` and `moe_layer_freq` count
        where the family reads them."""
        dense, every = getattr(self, "first_k_dense_replace", self.leading_dense), getattr(self, "moe_layer_freq", 1)
        return leading_dense(self.num_hidden_layers, dense, every)

    def derive(self) -> None:
        super().derive()
        if self.mlp_layer_types is None:
            self.mlp_layer_types = self.default_mlp_layer_types()
        check_types("mlp_layer_types", self.mlp_layer_types, self.num_hidden_layers, ("dense", "sparse"))


class Multimodal(Schema):
    """A config that nests those of its parts; a part that is missing or null has its class's default."""

    tie_word_embeddings: bool = False

    @model_validator(mode="before")
    @classmethod
    def _drop_null_parts(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):  # nested, and no object: pydantic says so
            return fields
        parts = {name for name, field in cls.model_fields.items() if field.default_factory is not None}
        return {name: value for name, value in fields.items() if value is not None or name not in parts}


class FlatMultimodal(Multimodal):
    """As Multimodal; published files may hold the text model's fields beside those of the towers,
    and its tie_word_embeddings inside text_config."""

    @model_validator(mode="before")
    @classmethod
    def _gather_text(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        text = fields.get("text_config") or fields
        tied = fields.get("tie_word_embeddings") or (isinstance(text, dict) and text.get("tie_word_embeddings"))
        return {**fields, "text_config": text, "tie_word_embeddings": tied or False}


class Nested(Multimodal):
    """A config with parts of any type: the nested config's model_type decides. `part_defaults` has the
    model_type of a part that names none, with the fields of a part that is missing altogether."""

    part_defaults: ClassVar[dict[str, dict[str, Any]]] = {}

    text_config: Part

    @model_validator(mode="before")
    @classmethod
    def _read_parts(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {**fields, **{name: cls._read_part(name, fields.get(name)) for name in cls.part_defaults}}

    @classmethod
    def _read_part(cls, name: str, given: Any) -> Schema:
        default = cls.part_defaults[name]
        part = default if given is None else given
        if not isinstance(part, dict):
            raise ValueError(f"{name}: found {part!r}, expected an object")
        model_type = part.get("model_type", default["model_type"])
        if not isinstance(model_type, str):
            raise ValueError(f"{name}.model_type: found {model_type!r}, expected a string such as 'llama'")
        estimator = find_part(model_type)
        return estimator.schema.read(estimator.model_type, part, f"({name})")  # type: ignore[no-any-return]

    def derive(self) -> None:
        if not hasattr(self.text_config, "hidden_size") or not hasattr(self.text_config, "vocab_size"):
            raise ValueError(f"text_config: found a {self.text_config.read_as}, expected a language model")


def part(c: Schema, **options: Any) -> Module:
    """The tree of a part of a Nested config."""
    return find_part(c.read_as).build(c, **options)


def window(size: int | None) -> Span:
    """A sliding window, or full attention where the config has none."""
    return Window(size) if size else Full()


def check_types(field: str, types: list[str], num_layers: int | None, allowed: Iterable[str]) -> None:
    """ValueError unless a per-layer list has one known entry a layer; None takes any number."""
    if num_layers is not None and len(types) != num_layers:
        raise ValueError(f"{field}: found {len(types)} entries, expected num_hidden_layers = {num_layers}")
    unknown = sorted(set(types) - set(allowed))
    if unknown:
        raise ValueError(f"{field}: found {unknown[0]!r}, expected one of {', '.join(allowed)}")


def every_nth_full(num_layers: int, n: int) -> list[str]:
    """Layer types of a model whose every n-th layer is full and whose others slide."""
    return ["sliding_attention" if (i + 1) % n else "full_attention" for i in range(num_layers)]


def leading_dense(num_layers: int, num_dense: int, every: int = 1) -> list[str]:
    """MLP types of a model whose first layers are dense, and whose others are sparse: all of them, or
    each whose number `every` divides."""
    return ["sparse" if i >= num_dense and i % every == 0 else "dense" for i in range(num_layers)]


def check_top_k(top_k: int, num_experts: int, field: str = "num_experts_per_tok") -> None:
    """ValueError where a token would use more experts than there are."""
    if num_experts and top_k > num_experts:
        raise ValueError(f"{field}: found {top_k}, expected at most the number of experts, {num_experts}")


def check_multiple(field: str, value: int, of: str, divisor: int) -> None:
    """ValueError unless one dimension is a whole multiple of another."""
    if value % divisor:
        raise ValueError(f"{field}: found {value}, expected a multiple of {of} = {divisor}")


def each(layer: Callable[[K], Node], kinds: Iterable[K]) -> Layers:
    """A layer list from the kind of each layer: one object per distinct kind."""
    built: dict[K, Node] = {}
    return Layers(built[kind] if kind in built else built.setdefault(kind, layer(kind)) for kind in kinds)


def attention(
    c: Any,
    span: Span,
    *,
    bias: bool = False,
    o_bias: bool | None = None,
    qk_norm: bool | Literal["all_heads"] = False,
    gate: bool = False,
    after_core: Mapping[str, Node] | None = None,
    out: str = "o_proj",
    **extra: Node | None,
) -> Module:
    """Grouped-query attention of `c.num_attention_heads` heads of `c.head_dim`.

    `gate` doubles q_proj by an output gate, `qk_norm` adds RMSNorms over head_dim, or over all
    heads at once, `o_bias` defaults to `bias`; further parameters, or other norms, come as keywords,
    those that work on what the core gives out in `after_core`; `out` names the output projection.
    """
    heads, kv_heads, dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    if qk_norm == "all_heads":
        extra = {"q_norm": Norm(heads * dim, "head_norm"), "k_norm": Norm(kv_heads * dim, "head_norm")} | extra
    elif qk_norm:
        extra = {"q_norm": Norm(dim, "head_norm", heads), "k_norm": Norm(dim, "head_norm", kv_heads)} | extra
    return Module(
        q_proj=Linear(c.hidden_size, heads * dim * (2 if gate else 1), bias, "gated_query" if gate else "linear"),
        k_proj=Linear(c.hidden_size, kv_heads * dim, bias),
        v_proj=Linear(c.hidden_size, kv_heads * dim, bias),
        **extra,
        core=Attention(heads, dim, dim, span),
        **(after_core or {}),
        **{out: Linear(heads * dim, c.hidden_size, bias if o_bias is None else o_bias)},
    ).reading(
        "q_proj", "k_proj", "v_proj", q_norm="q_proj", k_norm="k_proj", q_layernorm="q_proj", k_layernorm="k_proj"
    )


def mla(c: Any, span: Span, *, after_core: Mapping[str, Node] | None = None, **extra: Node | None) -> Module:
    """Multi-head latent attention of DeepSeek: keys and values come out of one low-rank latent, the
    queries too unless `c.q_lora_rank` is None. As trained: the latents are expanded to full heads
    (the form that absorbs kv_b_proj into the queries serves decoding)."""
    heads, qk_dim = c.num_attention_heads, c.qk_nope_head_dim + c.qk_rope_head_dim
    if c.q_lora_rank is None:
        queries: dict[str, Node] = {"q_proj": Linear(c.hidden_size, heads * qk_dim)}
    else:
        queries = {
            "q_a_proj": Linear(c.hidden_size, c.q_lora_rank, c.attention_bias),
            "q_a_layernorm": Norm(c.q_lora_rank, "latent_norm"),
            "q_b_proj": Linear(c.q_lora_rank, heads * qk_dim),
        }
    return Module(
        **queries,
        kv_a_proj_with_mqa=Linear(c.hidden_size, c.kv_lora_rank + c.qk_rope_head_dim, c.attention_bias),
        kv_a_layernorm=Norm(c.kv_lora_rank, "latent_norm"),
        kv_b_proj=Linear(c.kv_lora_rank, heads * (c.qk_nope_head_dim + c.v_head_dim)),
        **extra,
        core=Attention(
            heads, qk_dim, c.v_head_dim, span, absorbed=(c.kv_lora_rank + c.qk_rope_head_dim, c.kv_lora_rank)
        ),
        **(after_core or {}),
        o_proj=Linear(heads * c.v_head_dim, c.hidden_size, c.attention_bias),
    ).reading("kv_a_proj_with_mqa", kv_a_layernorm="kv_a_proj_with_mqa", kv_b_proj="kv_a_layernorm")


def mlp(hidden: int, width: int, *, bias: bool = False) -> Module:
    """The gated MLP of llama: gate, up and down."""
    return Module(
        gate_proj=Linear(hidden, width, bias),
        up_proj=Linear(hidden, width, bias),
        down_proj=Linear(width, hidden, bias),
    ).reading("gate_proj", "up_proj")


def fused_mlp(hidden: int, width: int, *, bias: bool = False) -> Module:
    """The gated MLP with gate and up in one matrix, as phi3 and glm4 store it."""
    return Module(gate_up_proj=Linear(hidden, 2 * width, bias), down_proj=Linear(width, hidden, bias))


def plain_mlp(
    hidden: int,
    width: int,
    *,
    bias: bool = False,
    names: tuple[str, str] = ("up_proj", "down_proj"),
    **extra: Node | None,
) -> Module:
    """An MLP without a gate: two matrices, under the names given; what works between them comes as
    keywords."""
    return Module(**{names[0]: Linear(hidden, width, bias), **extra, names[1]: Linear(width, hidden, bias)})


def experts(hidden: int, width: int, num_experts: int, top_k: int, *, transposed: bool = False) -> Routed:
    """Gated routed experts as transformers 5 fuses them: gate_up (E, 2F, H) and down (E, H, F);
    `transposed` stores (E, H, 2F) and (E, F, H)."""
    up, down = (2 * width, hidden), (hidden, width)
    return Routed(
        num_experts,
        top_k,
        gate_up_proj=Weight((num_experts, *(up[::-1] if transposed else up)), "experts", transposed),
        down_proj=Weight((num_experts, *(down[::-1] if transposed else down)), "experts", transposed),
    )


def moe(hidden: int, width: int, num_experts: int, top_k: int, **extra: Node | None) -> Module:
    """A router named `gate` over routed experts; shared experts come as keywords."""
    routed = experts(hidden, width, num_experts, top_k)
    return Module(gate=router(hidden, num_experts), experts=routed, **extra).reading("gate", "experts", *extra)


def router(hidden: int, num_experts: int, **extra: Node | None) -> Module:
    """A router that is a module of its own with a bare weight, no `nn.Linear`."""
    return Module(weight=Weight((num_experts, hidden), "router"), **extra)


def shared_moe(c: Any) -> Module:
    """Routed experts plus one shared expert whose output a scalar gate scales, as Qwen's models have."""
    return moe(
        c.hidden_size,
        c.moe_intermediate_size,
        c.num_experts,
        c.num_experts_per_tok,
        shared_expert=mlp(c.hidden_size, c.shared_expert_intermediate_size),
        shared_expert_gate=Linear(c.hidden_size, 1, kind="shared_gate"),
    )


def dense_or_sparse(c: Any, kind: str, num_experts: int, num_shared: int | None, *, bias: bool = False) -> Module:
    """The MLP of a `dense` layer, or else routed experts beside shared ones (None: no such module).
    The bias is that of the dense and shared MLPs."""
    if kind == "dense":
        return mlp(c.hidden_size, c.intermediate_size, bias=bias)
    width = c.moe_intermediate_size
    shared = None if num_shared is None else mlp(c.hidden_size, width * num_shared, bias=bias)
    return moe(c.hidden_size, width, num_experts, c.num_experts_per_tok, shared_experts=shared)


def decoder_layer(hidden: int, *, norm: Callable[[int], Node] = Norm, **parts: Node | None) -> Module:
    """A pre-norm layer: its mixer and MLP under the names given, and two norms."""
    names = list(parts)
    mlp_at = next(names.index(name) for name in ("mlp", "feed_forward", "block_sparse_moe") if name in parts)
    return Module(
        input_layernorm=norm(hidden),
        **{name: parts[name] for name in names[:mlp_at]},
        post_attention_layernorm=norm(hidden),
        **{name: parts[name] for name in names[mlp_at:]},
    )


def fc_layer(
    hidden: int,
    width: int,
    self_attn: Module,
    *,
    pre_norm: bool,
    bias: bool = True,
    affine: bool = True,
    encoder_attn: Module | None = None,
) -> Module:
    """Attention, then the matrices fc1 and fc2 of this bias, with LayerNorms before or behind both, whose
    vectors exist where they are `affine`. Cross-attention runs where an encoder is given, never in a
    language model alone."""
    norm = LayerNorm(hidden) if affine else None
    cross: dict[str, Node] = {}
    if encoder_attn is not None:
        cross = {
            "encoder_attn": encoder_attn.never_run(),
            "encoder_attn_layer_norm": Module(**{"": norm}).never_run(),
        }
    matrices = {"fc1": Linear(hidden, width, bias), "fc2": Linear(width, hidden, bias)}
    if pre_norm:
        return Module(self_attn_layer_norm=norm, self_attn=self_attn, **cross, final_layer_norm=norm, **matrices)
    return Module(self_attn=self_attn, self_attn_layer_norm=norm, **cross, **matrices, final_layer_norm=norm)


def mamba2(
    hidden: int,
    heads: int,
    head_dim: int,
    state: int,
    groups: int,
    taps: int,
    *,
    conv_bias: bool,
    bias: bool = False,
    out_bias: bool | None = None,
    norm: bool = True,
) -> Module:
    """The Mamba-2 mixer. in_proj emits the output gate, the convolved (x, B, C) and a time step per
    head; `groups` heads share B and C; `out_bias` defaults to `bias`, `norm` is the gated RMSNorm."""
    inner = heads * head_dim
    convolved = inner + 2 * groups * state
    return Module(
        in_proj=Linear(hidden, inner + convolved + heads, bias),
        conv1d=Conv1d(convolved, taps, conv_bias, kind="scan_conv"),
        dt_bias=Weight((heads,)),
        A_log=Weight((heads,)),
        D=Weight((heads,)),
        scan=Mamba2(heads, head_dim, state, hidden),
        norm=Norm(inner) if norm else None,
        out_proj=Linear(inner, hidden, bias if out_bias is None else out_bias),
    )


def mamba(
    hidden: int,
    inner: int,
    state: int,
    rank: int,
    taps: int,
    *,
    conv_bias: bool,
    bias: bool = False,
    **norms: Node | None,
) -> Module:
    """The Mamba mixer. in_proj emits the convolved channels and their output gate, x_proj the low-rank
    time step, B and C (with `norms` of these), dt_proj a time step per channel."""
    return Module(
        in_proj=Linear(hidden, 2 * inner, bias),
        conv1d=Conv1d(inner, taps, conv_bias, kind="scan_conv"),
        x_proj=Linear(inner, rank + 2 * state),
        **norms,
        dt_proj=Linear(rank, inner, bias=True),
        A_log=Weight((inner, state)),
        D=Weight((inner,)),
        scan=Mamba(inner, state),
        out_proj=Linear(inner, hidden, bias),
    )


def backbone(c: Any, layers: Layers, **parts: Node | None) -> Module:
    """embed_tokens, layers and norm; further parts, or another norm, come as keywords."""
    parts = {"norm": Norm(c.hidden_size, "final_norm")} | parts
    return Module(embed_tokens=Embedding(c.vocab_size, c.hidden_size), layers=layers, **parts)


def lm_head(c: Any, tied_to: str | None, *, bias: bool = False) -> Linear:
    """The output matrix, on its own or tied to the parameter of that name."""
    return Linear(c.hidden_size, c.vocab_size, bias, kind="head", tied_to=tied_to)


def causal_lm(c: Any, layers: Layers, *, head_bias: bool = False, **parts: Node | None) -> Module:
    """The causal LM skeleton: model.embed_tokens, model.layers, model.norm, lm_head (tied or not).
    Further parts of the model, or another norm, come as keywords."""
    return with_head(c, backbone(c, layers, **parts), bias=head_bias)


def with_head(c: Any, body: Module, *, bias: bool = False) -> Module:
    """A backbone named `model` and lm_head, tied to its embed_tokens or not."""
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=body, lm_head=lm_head(c, tied_to, bias=bias))


def multimodal_lm(c: Any, language_model: Module, **towers: Node | None) -> Module:
    """The skeleton of models with towers: model.<tower>, model.language_model, lm_head. `c` is the
    whole config: its own tie_word_embeddings decides, not that of its text_config."""
    tied_to = "model.language_model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=Module(**towers, language_model=language_model), lm_head=lm_head(c.text_config, tied_to))
