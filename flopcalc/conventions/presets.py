"""The conventions of the field, each a value. `docs/conventions.md` tells their rules and how the numbers
that the frameworks print differ from them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

from flopcalc.conventions.convention import Convention
from flopcalc.tree import LOOKUP_KINDS, MATMUL_KINDS, Kind

__all__ = ["CONVENTIONS"]

ALL_WEIGHTS: frozenset[Kind] = frozenset(get_args(Kind)) - LOOKUP_KINDS
NO_ROUTER: frozenset[Kind] = MATMUL_KINDS - {"router", "shared_gate"}
VEOMNI_WEIGHTS: frozenset[Kind] = MATMUL_KINDS | {"conv"}
VERL_WEIGHTS: frozenset[Kind] = VEOMNI_WEIGHTS | {"embedding"}

MAXTEXT_WINDOWS = ("gemma2", "gemma3_text", "gemma4", "gemma4_text", "gpt_oss", "deepseek_v4")

FULL_ATTENTION: dict[str, Any] = {"window": "ignore", "chunk": "ignore", "sparse": "ignore"}
NO_RECURRENCES: dict[str, Any] = {"delta_rule": 0, "mamba2": 0, "mamba": 0, "linear_attention": 0}
NO_INDEXER: dict[str, Any] = {"indexer_weights": "none", "indexer_scores": "none"}
TRAINED_INDEXER: dict[str, Any] = {"indexer_weights": "trained", "indexer_scores": "trained"}
TEXT_IN_FULL: dict[str, Any] = {"towers": "none", "frozen": "ignore"}
"""Of counters that know neither towers nor frozen weights."""


def _preset(base: Convention | None = None, **knobs: Any) -> Convention:
    """A preset, or another with some knobs set anew. It is not validated here, which would triple the
    work of `import flopcalc`: a test does."""
    return Convention.model_construct(**knobs) if base is None else base.model_copy(update=knobs)


STANDARD = _preset(
    name="standard",
    summary="torchtitan's rules per document: 6 FLOPs per active parameter, dense pairs, indexer scores forward only",
    weights=ALL_WEIGHTS,
    pairs="dense",
    indexer_weights="trained",
)
TORCHTITAN = _preset(
    name="torchtitan",
    summary="torchtitan main (since 2026-09): as standard, the indexer with a backward",
    source="torchtitan, torchtitan/models/utils.py after pull requests 4300 (2026-08-26) and 4441 (2026-09-03)",
    weights=ALL_WEIGHTS,
    pairs="dense",
    **TRAINED_INDEXER,
    **TEXT_IN_FULL,
)
MEGATRON_LM = _preset(
    name="megatron_lm",
    summary="matrices without routers, all attention full and halved; the vocabulary padded",
    source="Megatron-LM, megatron/training/training.py num_floating_point_operations, 2026-08-22",
    weights=NO_ROUTER | {"conv", "latent_norm", "mtp_norm"},
    head_multiple=128,
    pairs="half",
    delta_rule=8,
    delta_state="value_value",
    mamba2=7,
    mamba2_width="twice_hidden",
    overrides={"nemotron_h": {"weights": NO_ROUTER - {"mtp_projection"}}},
    **FULL_ATTENTION,
    **NO_INDEXER,
    **TEXT_IN_FULL,
)

_PRESETS = (
    STANDARD,
    _preset(
        STANDARD,
        name="prime_rl",
        summary="prime-rl since 2026-08: the same rule as standard",
        source="prime-rl, src/prime_rl/trainer/perf.py, the counter after snapshot 559b447 (2026-08-21)",
    ),
    _preset(
        name="prime_rl_2026_08",
        summary="prime-rl before: projections, dense pairs of the packed row, all attention full",
        source="prime-rl, src/prime_rl/trainer/perf.py, 2026-08-01",
        weights=MATMUL_KINDS - {"output_gate", "shared_gate", "stream_map"},
        pairs="dense",
        towers="none",
        mtp="none",
        **FULL_ATTENTION,
        **NO_RECURRENCES,
        **NO_INDEXER,
    ),
    TORCHTITAN,
    _preset(
        TORCHTITAN,
        name="torchtitan_0_3",
        summary="torchtitan 0.3.0: windows counted as full attention, recurrences not at all",
        source="torchtitan 0.3.0, torchtitan/models/utils.py, 2026-08-20",
        overrides={"deepseek_v4": {"sparse": "follow"}},
        mtp="none",
        **FULL_ATTENTION,
        **NO_RECURRENCES,
    ),
    _preset(
        name="verl",
        summary="matrices and once more the embedding, half the pairs of each document, towers",
        source="verl 0.9.1, verl/utils/flops_counter.py, 2026-07-10",
        weights=VERL_WEIGHTS,
        pairs="half",
        merger_rows="patches",
        frozen="ignore",
        overrides={
            **{model_type: {"window": "follow"} for model_type in ("gemma3_text", "gemma3", "gpt_oss")},
            "apertus": {"weights": VERL_WEIGHTS | {"head_norm"}, "head_norms": "each_head"},
        },
        mtp="none",
        **{**FULL_ATTENTION, **NO_RECURRENCES, **NO_INDEXER, "delta_rule": 5},
    ),
    _preset(
        name="veomni",
        summary="matrices, dense pairs of each document (single types exact), towers",
        source="VeOmni 0.1.12, veomni/utils/count_flops.py, 2026-08-07",
        weights=VEOMNI_WEIGHTS,
        pairs="dense",
        latent_core="query_width",
        stream_mix=True,
        merger_rows="patches",
        overrides={
            "gpt_oss": {"window": "exact"},
            "deepseek_v4": {"pairs": "exact", "window": "follow", "sparse": "follow"},
            **{name: {"weights": VEOMNI_WEIGHTS - {"patch_embedding"}} for name in ("qwen2_vl", "qwen2_5_vl")},
        },
        mtp="none",
        **{**FULL_ATTENTION, **NO_RECURRENCES, **TRAINED_INDEXER, "delta_rule": 5},
    ),
    MEGATRON_LM,
    _preset(
        MEGATRON_LM,
        name="megatron_bridge",
        summary="Megatron-LM's rule with exact windows and sparse attention, and towers",
        source="Megatron-Bridge, src/megatron/bridge/training/utils/flop_utils.py, 2026-08-21",
        weights=MEGATRON_LM.weights - {"patch_embedding"},
        window="beyond",
        sparse="exact",
        indexer_weights="forward",
        indexer_scores="forward",
        indexer_pairs="exact",
        indexer_head_sum=True,
        towers="own_tokens",
        frozen="follow",
        overrides={
            "deepseek_v32": {"latent_core": "absorbed"},
            "glm_moe_dsa": {"latent_core": "absorbed"},
            **MEGATRON_LM.overrides,
            "deepseek_v4": {
                "weights": MEGATRON_LM.weights - {"patch_embedding", "stream_map"},
                "window": "unbounded",
                "sparse": "continuous",
                "indexer_pairs": "dense",
                "indexer_head_sum": False,
                **TRAINED_INDEXER,
            },
        },
        printed={"frozen": "ignore"},
    ),
    _preset(
        name="automodel",
        summary="matrices without routers, half the pairs of each row, gpt-oss exact",
        source="NeMo Automodel, nemo_automodel/components/utils/flops_utils.py, 2026-08-20",
        weights=NO_ROUTER | {"conv"},
        pairs="half",
        window="ignore",
        chunk="ignore",
        sparse="unbounded",
        delta_rule=8,
        delta_state="value_value",
        mamba2=7,
        indexer_pairs="dense",
        overrides={
            "gpt_oss": {"pairs": "exact", "window": "follow"},
            "nemotron_h": {"weights": NO_ROUTER | {"conv", "router"}},
        },
        **TRAINED_INDEXER,
        **TEXT_IN_FULL,
    ),
    _preset(
        name="nemo_rl",
        summary="matrices without routers, half the pairs of each sample",
        source="NeMo-RL, nemo_rl/utils/flops_formulas.py, 2026-06-09",
        weights=NO_ROUTER,
        pairs="half",
        mtp="none",
        **{**FULL_ATTENTION, **NO_RECURRENCES, **NO_INDEXER, **TEXT_IN_FULL, "mamba2": 2},
    ),
    _preset(
        name="slime",
        summary="matrices without routers and gates, half the pairs of each document",
        source="slime, slime/utils/flops_utils.py, 2026-05-29",
        weights=NO_ROUTER - {"output_gate"},
        pairs="half",
        mtp="none",
        **FULL_ATTENTION,
        **NO_RECURRENCES,
        **NO_INDEXER,
        **TEXT_IN_FULL,
    ),
    _preset(
        name="maxtext",
        summary="matrices without output gates, half the pairs of each row, limits as areas",
        source="MaxText, src/maxtext/utils/maxtext_utils.py, 2026-08-17",
        weights=MATMUL_KINDS - {"output_gate", "shared_gate", "mtp_projection"} | {"conv"},
        pairs="half",
        window="ignore",
        sparse="continuous",
        indexer_head_sum=True,
        stream_mix=True,
        stream_vectors=3,
        mtp="layer",
        overrides={
            **{name: {"window": "continuous"} for name in MAXTEXT_WINDOWS},
            "gemma3": {"window": "continuous", "towers": "own_tokens"},
            "llama4": {"towers": "own_tokens"},
        },
        **{**NO_RECURRENCES, **TRAINED_INDEXER, **TEXT_IN_FULL, "delta_rule": 8},
    ),
    _preset(
        name="levanter",
        summary="matrices, dense pairs, and the work of mask and softmax",
        source="Levanter, src/levanter/utils/flop_utils.py, 2025-09-11",
        weights=MATMUL_KINDS - {"output_gate", "shared_gate"},
        pairs="dense",
        softmax=3,
        mtp="none",
        **FULL_ATTENTION,
        **NO_RECURRENCES,
        **NO_INDEXER,
        **TEXT_IN_FULL,
    ),
    _preset(
        name="olmo_core",
        summary="parameters of attention, MLP and head without block norms, dense pairs of each row",
        source="OLMo-core, num_flops_per_token of its modules, 2026-06-22",
        weights=MATMUL_KINDS | {"conv", "bias", "head_norm", "final_norm"},
        pairs="dense",
        printed={"delta_backward": False},
        mtp="none",
        **{**NO_RECURRENCES, **NO_INDEXER, **TEXT_IN_FULL, "delta_rule": 8},
    ),
    _preset(
        name="trl",
        summary="matrices and an embedding that is not the head, dense pairs of each row",
        source="TRL, trl/trainer/utils.py compute_flops_per_token, 2026-07-17",
        weights=MATMUL_KINDS - {"output_gate", "shared_gate"} | {"embedding"},
        tied_head=False,
        pairs="dense",
        mtp="none",
        **FULL_ATTENTION,
        **NO_RECURRENCES,
        **NO_INDEXER,
        **TEXT_IN_FULL,
    ),
    _preset(
        name="hf_trainer",
        summary="6 FLOPs per parameter outside embeddings, all experts, and no attention core",
        source="transformers 5.24, Trainer.floating_point_ops; ms-swift, swift/callbacks/perf_log.py, 2026-06-07",
        weights=ALL_WEIGHTS - {"adapter"},
        tied_head=False,
        experts="all",
        pairs="none",
        indexer_weights="trained",
        indexer_scores="none",
        towers="text_tokens",
        frozen="ignore",
        mtp="none",
        **NO_RECURRENCES,
    ),
    _preset(
        name="palm",
        summary="6N + 12LHQT: active parameters without embedding, all attention full and dense",
        source="Chowdhery et al. 2022 (arXiv 2204.02311), appendix B",
        weights=ALL_WEIGHTS,
        pairs="dense",
        indexer_weights="trained",
        indexer_scores="none",
        mtp="none",
        **FULL_ATTENTION,
        **NO_RECURRENCES,
        **TEXT_IN_FULL,
    ),
    _preset(
        name="matmul-dense",
        summary="matrix weights only, dense pairs (windows n*min(n, w))",
        weights=MATMUL_KINDS,
        pairs="dense",
        stream_mix=True,
        input_gradient="autograd",
    ),
    _preset(
        name="exact",
        summary="matrix weights only, causal pairs key by key: what a perfect kernel runs",
        weights=MATMUL_KINDS,
        pairs="exact",
        stream_mix=True,
        input_gradient="autograd",
    ),
)

CONVENTIONS: Mapping[str, Convention] = MappingProxyType({preset.name: preset for preset in _PRESETS})
