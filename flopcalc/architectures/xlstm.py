"""xLSTM: layers of mLSTM, whose heads keep a matrix under exponential gates, and a gated MLP."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import check_multiple, lm_head
from flopcalc.config import Count, Repeats, Schema, Size
from flopcalc.estimators import register
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, LinearAttention, Module


class XlstmConfig(Schema):
    vocab_size: Size = 50304
    hidden_size: Size | None = 4096
    embedding_dim: Size | None = None
    num_hidden_layers: Count | None = 32
    num_blocks: Repeats | None = None
    num_heads: Size = 8
    use_bias: bool = False
    qk_dim_factor: float | int = 0.5
    v_dim_factor: float | int = 1.0
    ffn_proj_factor: float | int = 2.667
    ffn_round_up_to_multiple_of: Size = 64
    weight_mode: Literal["single", "fused"] = "single"

    def derive(self) -> None:
        self.hidden_size = self.hidden_size or self.embedding_dim
        self.embedding_dim = self.embedding_dim or self.hidden_size
        if self.num_hidden_layers is None:
            self.num_hidden_layers = self.num_blocks
        if self.num_blocks is None:
            self.num_blocks = self.num_hidden_layers
        if self.hidden_size is None or self.num_blocks is None:
            missing = "hidden_size" if self.hidden_size is None else "num_hidden_layers"
            raise ValueError(f"{missing}: found None, expected a number")
        if self.embedding_dim != self.hidden_size:
            raise ValueError(f"embedding_dim: found {self.embedding_dim}, expected hidden_size = {self.hidden_size}")
        for name, width in (("qk_dim_factor", self.qk_width), ("v_dim_factor", self.v_width)):
            check_multiple(f"{name} * hidden_size", width, "num_heads", self.num_heads)

    @property
    def qk_width(self) -> int:
        return int(self.hidden_size * self.qk_dim_factor)

    @property
    def v_width(self) -> int:
        return int(self.hidden_size * self.v_dim_factor)

    @property
    def ffn_width(self) -> int:
        multiple = self.ffn_round_up_to_multiple_of
        return int((self.hidden_size * self.ffn_proj_factor + multiple - 1) // multiple * multiple)


@register("xlstm", XlstmConfig)
def xlstm(c: XlstmConfig) -> Module:
    hidden, heads, qk, v, bias = c.hidden_size, c.num_heads, c.qk_width, c.v_width, c.use_bias
    if c.weight_mode == "single":
        inputs = {
            "q": Linear(hidden, qk, bias),
            "k": Linear(hidden, qk, bias),
            "v": Linear(hidden, v, bias),
            "ogate_preact": Linear(hidden, v, bias),
            "igate_preact": Linear(hidden, heads, bias=True),
            "fgate_preact": Linear(hidden, heads, bias=True),
        }
        ups = {"proj_up_gate": Linear(hidden, c.ffn_width, bias), "proj_up": Linear(hidden, c.ffn_width, bias)}
    else:
        inputs = {
            "qkv_opreact": Linear(hidden, 2 * qk + 2 * v, bias),
            "ifgate_preact": Linear(hidden, 2 * heads, bias=True),
        }
        ups = {"proj_up_gate_z": Linear(hidden, 2 * c.ffn_width, bias)}
    mlstm = Module(
        **inputs,
        mlstm_backend=Module(recurrence=LinearAttention(heads, qk // heads, v // heads)),
        multihead_norm=LayerNorm(v, bias),
        out_proj=Linear(v, hidden, bias),
    ).reading(*inputs)
    block = Module(
        norm_mlstm=LayerNorm(hidden, bias),
        mlstm_layer=mlstm,
        norm_ffn=LayerNorm(hidden, bias),
        ffn=Module(**ups, proj_down=Linear(c.ffn_width, hidden, bias)).reading(*ups),
    )
    return Module(
        backbone=Module(
            embeddings=Embedding(c.vocab_size, hidden),
            blocks=Layers([block] * c.num_blocks),
            out_norm=LayerNorm(hidden, bias=False, kind="final_norm"),
        ),
        lm_head=lm_head(c, None),  # never tied
    )
