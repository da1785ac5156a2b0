"""Zamba: Mamba layers, before some of which a transformer block runs whose weights all of them share. It
reads the hidden state beside the word embedding, twice as wide. Mamba's heads have projections of their
own. In Zamba2 the layers run Mamba-2, several blocks take turns, and each place where a block runs has
adapters of its own, which live in the block."""

from __future__ import annotations

from itertools import count
from typing import Literal

from flopcalc.architectures.blocks import LEGACY_LAYER_TYPES, check_multiple, check_types, each, lm_head, mamba2, mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Conv1d, Embedding, Layers, Linear, Mamba, Module, Node, Norm, Weight


class SharedBlockDecoder(Schema):
    """Fields of decoders whose hybrid layers share attention."""

    vocab_size: Size = 32000
    hidden_size: Size
    num_hidden_layers: Count
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    attention_hidden_size: Size | None = None
    attention_head_dim: Size | None = aliases("head_dim", "attention_head_dim", default=None)
    n_mamba_heads: Size
    mamba_d_conv: Size = 4
    mamba_expand: Size = 2
    tie_word_embeddings: bool = True
    layers_block_type: list[str] | None = aliases("layers_block_type", "layer_types", default=None)

    def default_types(self) -> list[str]:
        """The pattern of a config that has none."""
        raise NotImplementedError

    def derive(self) -> None:
        self.attention_hidden_size = self.attention_hidden_size or 2 * self.hidden_size
        self.attention_head_dim = self.attention_head_dim or 2 * self.hidden_size // self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.layers_block_type is None:
            self.layers_block_type = self.default_types()
        self.layers_block_type = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.layers_block_type]
        check_types("layers_block_type", self.layers_block_type, None, ("linear_attention", "hybrid"))
        if len(self.layers_block_type) < self.num_hidden_layers:
            raise ValueError(
                f"layers_block_type: found {len(self.layers_block_type)} entries, expected num_hidden_layers = "
                f"{self.num_hidden_layers}"
            )
        check_multiple("mamba_expand * hidden_size", self.inner, "n_mamba_heads", self.n_mamba_heads)

    @property
    def inner(self) -> int:
        return self.mamba_expand * self.hidden_size


class ZambaConfig(SharedBlockDecoder):
    hidden_size: Size = 3712
    intermediate_size: Size = 14848
    num_hidden_layers: Count = 76
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 16
    n_mamba_heads: Size = 2
    attn_layer_period: Size = 6
    attn_layer_offset: Count = 4
    mamba_d_state: Size = 16
    mamba_dt_rank: Size | Literal["auto"] = "auto"
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = False

    def default_types(self) -> list[str]:
        period, offset = self.attn_layer_period, self.attn_layer_offset
        later = ["hybrid" if i % period == offset else "linear_attention" for i in range(self.num_hidden_layers - 3)]
        return ["linear_attention", "linear_attention", "hybrid", *later]

    def derive(self) -> None:
        super().derive()
        if self.mamba_dt_rank == "auto":
            self.mamba_dt_rank = -(-self.hidden_size // 16)


def wide_attention(c: SharedBlockDecoder, **extra: Node | None) -> Module:
    """Attention that reads the hidden state beside the word embedding."""
    wide, dim, heads, kv_heads = (
        c.attention_hidden_size,
        c.attention_head_dim,
        c.num_attention_heads,
        c.num_key_value_heads,
    )
    return Module(
        q_proj=Linear(wide, heads * dim),
        k_proj=Linear(wide, kv_heads * dim),
        v_proj=Linear(wide, kv_heads * dim),
        **extra,
        core=Attention(heads, dim, dim, Full()),
        o_proj=Linear(heads * dim, c.hidden_size),
    ).reading("q_proj", "k_proj", "v_proj", *extra)


def shared_block(c: SharedBlockDecoder, self_attn: Module, feed_forward: Module) -> Module:
    return Module(
        input_layernorm=Norm(c.attention_hidden_size),
        self_attn=self_attn,
        pre_ff_layernorm=Norm(c.hidden_size),
        feed_forward=feed_forward,
    )


def headwise_mamba(c: ZambaConfig) -> Module:
    """Mamba whose x and dt projections are block-diagonal: a matrix for each head."""
    hidden, state, rank, heads = c.hidden_size, c.mamba_d_state, int(c.mamba_dt_rank), c.n_mamba_heads
    width = c.inner // heads
    return Module(
        in_proj=Linear(hidden, 2 * c.inner, c.mamba_proj_bias),
        conv1d=Conv1d(c.inner, c.mamba_d_conv, c.mamba_conv_bias, kind="scan_conv"),
        x_proj_weight=Weight((heads, rank + 2 * state, width), "linear"),
        dt_proj_weight=Weight((heads, width, rank), "linear"),
        dt_proj_bias=Weight((heads, width), "bias"),
        A_log=Weight((heads, width, state)),
        D=Weight((heads, width)),
        scan=Mamba(c.inner, state),
        out_proj=Linear(c.inner, hidden, c.mamba_proj_bias),
    )


def shared_lm(c: SharedBlockDecoder, layers: Layers) -> Module:
    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, c.hidden_size),
            layers=layers,
            final_layernorm=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None),
    )


@register("zamba", ZambaConfig)
def zamba(c: ZambaConfig) -> Module:
    hidden = c.hidden_size
    block = shared_block(c, wide_attention(c), mlp(hidden, c.intermediate_size))
    scan = Module(input_layernorm=Norm(hidden), mamba=headwise_mamba(c))
    hybrids = [i for i, kind in enumerate(c.layers_block_type) if kind == "hybrid"]
    owners = hybrids[:1] if c.tie_word_embeddings else hybrids  # untied, nothing is shared

    def layer(kind: tuple[str, bool]) -> Module:
        attends, owns = kind
        if attends != "hybrid":
            return scan
        shared = block if owns else block.sharing(f"model.layers.{hybrids[0]}.shared_transf", runs_again=False)
        return Module(shared_transf=shared, linear=Linear(hidden, hidden), mamba_decoder=scan)

    return shared_lm(c, each(layer, [(kind, i in owners) for i, kind in enumerate(c.layers_block_type)]))


class Zamba2Config(SharedBlockDecoder):
    hidden_size: Size = 2560
    intermediate_size: Size | None = None
    num_hidden_layers: Count = 54
    num_attention_heads: Size = 32
    n_mamba_heads: Size = 8
    mamba_d_state: Size = 64
    mamba_headdim: Size | None = None
    mamba_ngroups: Size = 1
    add_bias_linear: bool = False
    num_mem_blocks: Size = 1
    use_shared_attention_adapter: bool = False
    adapter_rank: Size = 128

    def default_types(self) -> list[str]:
        plain, hybrid = ["linear_attention"], ["hybrid"]
        return plain + (plain * 5 + hybrid) * 7 + plain * 4 + hybrid + plain * 3 + hybrid + plain * 2

    def derive(self) -> None:
        super().derive()
        self.intermediate_size = self.intermediate_size or 4 * self.hidden_size
        check_multiple("n_mamba_heads", self.n_mamba_heads, "mamba_ngroups", self.mamba_ngroups)
        if self.mamba_headdim is None:
            self.mamba_headdim = self.inner // self.n_mamba_heads
        if self.mamba_headdim * self.n_mamba_heads != self.inner:
            given = "found" if "n_mamba_heads" in self.model_fields_set else "found none, which means"
            raise ValueError(
                f"n_mamba_heads: {given} {self.n_mamba_heads}, of mamba_headdim = {self.mamba_headdim} each, "
                f"expected {self.inner / self.mamba_headdim:g} to make mamba_expand * hidden_size = {self.inner}: "
                f"transformers cannot run the model otherwise"
            )


def adapters(places: range, place: int, width: int, rank: int, out: int) -> Module:
    """The adapters of a shared block, one for each place where it runs; only that of `place` runs here."""
    adapter = Module(**{"0": Linear(width, rank), "1": Linear(rank, out)})
    return Module(**{str(i): adapter if i == place else adapter.never_run() for i in places})


@register("zamba2", Zamba2Config)
def zamba2(c: Zamba2Config) -> Module:
    hidden, width, rank, wide = c.hidden_size, c.intermediate_size, c.adapter_rank, c.attention_hidden_size
    mixer = mamba2(
        hidden,
        c.n_mamba_heads,
        c.mamba_headdim,
        c.mamba_d_state,
        c.mamba_ngroups,
        c.mamba_d_conv,
        conv_bias=True,
        bias=c.add_bias_linear,
    )
    scan = Module(input_layernorm=Norm(hidden), mamba=mixer)
    hybrids = [i for i, kind in enumerate(c.layers_block_type) if kind == "hybrid"]
    places = count()

    def block(place: int) -> Module:
        mine = range(place % c.num_mem_blocks, len(hybrids), c.num_mem_blocks)
        attends = {f"linear_{letter}_adapter_list": adapters(mine, place, wide, rank, wide) for letter in "qkv"}
        feed_forward = Module(
            gate_up_proj=Linear(hidden, 2 * width, c.add_bias_linear),
            gate_up_proj_adapter_list=adapters(mine, place, hidden, rank, 2 * width),
            down_proj=Linear(width, hidden, c.add_bias_linear),
        ).reading("gate_up_proj", "gate_up_proj_adapter_list")
        shared = shared_block(c, wide_attention(c, **attends if c.use_shared_attention_adapter else {}), feed_forward)
        owner = hybrids[place % c.num_mem_blocks]
        owns = hybrids[place] == owner or not c.tie_word_embeddings  # untied, nothing is shared
        return shared if owns else shared.sharing(f"model.layers.{owner}.shared_transformer", runs_again=False)

    def hybrid() -> Module:
        return Module(shared_transformer=block(next(places)), linear=Linear(hidden, hidden), mamba_decoder=scan)

    return shared_lm(c, Layers(hybrid() if kind == "hybrid" else scan for kind in c.layers_block_type))
