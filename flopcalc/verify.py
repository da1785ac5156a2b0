"""The real model as the judge: build it with transformers on the meta device and compare.

Two things are compared: the parameter table (names and shapes of `named_parameters()`), and the
forward matmul FLOPs that `torch.utils.flop_counter.FlopCounterMode` sees, weights and mixers apart.

What the operator counter sees of an eager run of text differs from what a convention counts in four
ways, and only these: attention multiplies the whole square before it masks (rule `masked`), rotary tables
are built by a small matmul and weighted sums written as one (an indexer's, over its heads; both left
out here), and recurrences run as a chunked algorithm in plain torch (their modules' activation
products are left out on both sides, `unjudged` names them).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from flopcalc import facts
from flopcalc.config import read_config
from flopcalc.conventions import Convention
from flopcalc.counting import FlopCounter
from flopcalc.errors import FlopcalcError, InvalidBatch, InvalidOption
from flopcalc.estimators import ESTIMATORS, describe
from flopcalc.tree import (
    MATMUL_KINDS,
    Attention,
    ChannelScan,
    IndexScores,
    Mamba,
    Mixer,
    Node,
    Shape,
    StreamMix,
    Weight,
    walk,
)

__all__ = [
    "FlopComparison",
    "Verification",
    "build_real_model",
    "compare_flops",
    "compare_parameters",
    "operator_flops",
    "verify",
]

EAGER = Convention(
    name="eager",
    summary="what an operator counter sees of an eager forward pass",
    weights=MATMUL_KINDS,
    pairs="masked",
    delta_rule=0,
    mamba2=0,
    mamba=0,
    linear_attention=0,
    stream_mix=True,
)

_JUDGED_MIXERS = (Attention, IndexScores, StreamMix)

_PLAIN_MASK = ("bloom", "openai-gpt", "prophetnet", "reformer", "xlm", "xlnet")
"""Types that widen a mask of one row themselves, or build position biases from it, as ALiBi does."""
_WHOLE_POOLS = ("glm5_next",)
"""Types that mask the last pool of keys while it is not full, which meta tensors cannot do: they are
judged at lengths of whole pools."""
_SCANS = (Mamba, ChannelScan)
"""Recurrences that transformers runs token by token in Python."""
_FLOAT32 = ("xlstm",)
"""Types whose eager code multiplies a float32 state by the activations."""


class FlopComparison(NamedTuple):
    """Forward FLOPs of one document of `tokens`: ours against the operator counter's."""

    tokens: int
    weights: int
    weights_seen: int
    mixers: int
    mixers_seen: int

    @property
    def equal(self) -> bool:
        return (self.weights, self.mixers) == (self.weights_seen, self.mixers_seen)


@dataclass(frozen=True)
class Verification:
    """What `verify` found. Parameter entries are (name, shape)."""

    model_type: str
    num_params: int
    missing: list[tuple[str, Shape]] = field(default_factory=list)
    """Parameters of the real model that the tree lacks."""
    surplus: list[tuple[str, Shape]] = field(default_factory=list)
    """Parameters of the tree that the real model lacks."""
    flops: list[FlopComparison] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    """Recurrent modules, whose activation products an operator counter cannot judge."""
    not_run: str | None = None
    """Why the forward pass could not run on meta."""

    @property
    def parameters_equal(self) -> bool:
        return not self.missing and not self.surplus

    @property
    def equal(self) -> bool:
        return self.parameters_equal and self.not_run is None and all(comparison.equal for comparison in self.flops)


def verify(config: Any, lengths: Sequence[int] | None = None) -> Verification:
    """Compare a config's tree with the real model.

    Args:
        config: in any form that `describe` takes.
        lengths: documents whose forward FLOPs are compared, in tokens; by default long ones, unless
            the real model scans them token by token.

    Raises InvalidOption where torch or transformers are not installed, InvalidBatch for lengths below
    2, and FlopcalcError where transformers cannot build the model.
    """
    if lengths and min(lengths) < 2:
        raise InvalidBatch(
            f"lengths: found {min(lengths)}, expected at least 2 tokens: a product with a single row is "
            f"no matmul to the operator counter"
        )
    model_type, fields = read_config(config)
    tree = describe(fields | {"model_type": model_type})
    if (follows := facts.real_models()["no_real_model"].get(model_type)) is not None:
        raise FlopcalcError(f"{model_type}: transformers has no model of its own to compare with ({follows})")
    model = build_real_model(model_type, fields)
    missing, surplus = compare_parameters(tree, model)
    if lengths is None:
        long = (48, 144) if model_type in _WHOLE_POOLS else (48, 131)
        lengths = long if not any(isinstance(visit.leaf, _SCANS) for visit in walk(tree)) else (7, 12)
    try:
        flops, not_run = [compare_flops(tree, model, tokens) for tokens in lengths], None
    except Exception as error:  # whatever modelling code raises on meta tensors
        flops, not_run = [], f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    unjudged = sorted(set(_recurrent_modules(tree)))
    return Verification(model_type, tree.num_params(), missing, surplus, flops, unjudged, not_run)


def build_real_model(model_type: str, fields: dict[str, Any]) -> Any:
    """The transformers model of a config on the meta device, bf16 where that runs, eager attention. Types with
    towers give the whole model, others the causal LM, or the masked one where they have no other."""
    try:
        import torch
        from transformers import AutoConfig, logging
        from transformers.models.auto import modeling_auto as auto
    except ImportError as error:
        raise InvalidOption(f"verify needs torch and transformers: pip install 'flopcalc[verify]' ({error})") from None
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # fallback kernels and unused fields say nothing about shapes
    fields = ESTIMATORS[model_type].schema.renamed(fields)
    model_type = facts.real_models()["published_as"].get(model_type, model_type)
    whole = model_type in auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES
    masked = model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys() - auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
    factory: Any = auto.AutoModelForMaskedLM if masked else auto.AutoModelForCausalLM
    factory = auto.AutoModelForMultimodalLM if whole else factory
    kept = {key: value for key, value in fields.items() if key not in ("model_type", "quantization_config", "auto_map")}
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            config = AutoConfig.for_model(model_type, **kept)
            dtype = torch.float32 if model_type in _FLOAT32 else torch.bfloat16
            model = factory.from_config(config, dtype=dtype, attn_implementation="eager").eval()
            if any(parameter.device.type != "meta" for parameter in model.parameters()):  # of a legacy constructor
                model = model.to(device="meta", dtype=dtype)
            return model
    except Exception as error:
        raise FlopcalcError(f"{model_type}: transformers cannot build this config on meta: {error}") from error


def compare_parameters(tree: Node, model: Any) -> tuple[list[tuple[str, Shape]], list[tuple[str, Shape]]]:
    """(missing, surplus) parameters of the tree against `model.named_parameters()`."""
    ours = list(tree.parameters())
    real = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
    mine, theirs = set(ours), set(real)
    return [entry for entry in real if entry not in mine], [entry for entry in ours if entry not in theirs]


def compare_flops(tree: Node, model: Any, tokens: int) -> FlopComparison:
    """Forward matmul FLOPs of one text document of `tokens`: the tree's against the counter's."""
    by_kind = FlopCounter(tree, EAGER, "forward").breakdown([tokens]).by_kind()
    weights = sum(flops for kind, flops in by_kind.items() if kind in MATMUL_KINDS)
    mixers = sum(by_kind.values()) - weights
    attends = any(isinstance(visit.leaf, Attention) for visit in walk(tree))
    weights_seen, mixers_seen = operator_flops(
        tree, model, lambda: _forward_text(model, tokens, attends), tokens=tokens
    )
    if _owns_and_attends(tree):  # the two cannot be told apart
        weights, mixers = weights + mixers, 0
        weights_seen, mixers_seen = weights_seen + mixers_seen, 0
    return FlopComparison(tokens, weights, weights_seen, mixers, mixers_seen)


def _forward_text(model: Any, tokens: int, attends: bool = True) -> None:
    import torch

    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    mask = None
    if model.config.model_type in _PLAIN_MASK or getattr(model.config, "alibi", False):
        mask = torch.ones(1, tokens, device="meta")
    elif attends or hasattr(model.config, "num_attention_heads"):
        mask = torch.zeros(1, 1, tokens, tokens, dtype=torch.bfloat16, device="meta")
    positions = torch.arange(tokens, device="meta").unsqueeze(0)
    model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)


def operator_flops(tree: Node, module: Any, run: Callable[[], Any], path: str = "", tokens: int = 0) -> tuple[int, int]:
    """(weight products, activation products) in FLOPs that the operator counter sees while `run`
    calls `module` with so many tokens, the part of the real model that `path` names in the tree."""
    owners = set(_weight_modules(tree))
    routed = dict(_routed_modules(tree))
    recurrent = set(_recurrent_modules(tree))
    scorers = dict(_scorers(tree))
    readers = set(_stream_readers(tree))
    weights = mixers = 0
    for name, operator, flops in _run_counted(module, run, sums=bool(readers)):
        place = ".".join(filter(None, (path, name)))
        depthwise = "convolution" in operator and (place not in owners or place in recurrent)
        if "rotary" in place or depthwise:  # no matrix
            continue
        if place in scorers:  # by mm where it scores one query at a time; matrices of its own are mm too
            own = 0 if "bmm" in operator else 2 * tokens * scorers[place]
            weights += own
            mixers += flops - own
        elif place in readers:  # scores by its queries, and sums by these scores: two products of one size
            weights += flops // 2
            mixers += flops // 2
        elif "bmm" not in operator or place in owners:  # mm, addmm, _grouped_mm; block-diagonal weights use bmm
            top_k, num_experts = routed.get(place, (1, 1)) if "bmm" in operator else (1, 1)
            weights += flops * top_k // num_experts  # by bmm, every expert sees every token
        elif place not in recurrent:
            mixers += flops
    return weights, mixers


def _run_counted(module: Any, run: Callable[[], Any], *, sums: bool) -> Iterator[tuple[str, str, int]]:
    """(name under `module`, operator, FLOPs) of a run, children's work taken out of their parents'; `sums`
    says whether weighted sums that are written as a product count too."""
    import torch
    from torch.fx.experimental import _config as meta
    from torch.utils.flop_counter import FlopCounterMode

    def grouped_mm(rows: Any, weight: Any, *_: Any, **__: Any) -> int:
        return 2 * rows[0] * rows[1] * weight[-1]  # type: ignore[no-any-return]

    def bmm(left: Any, right: Any, *_: Any, **__: Any) -> int:
        vector = left[1] == 1 or right[2] == 1  # a weighted sum or a read-out, no product of matrices
        return 0 if vector and not sums else 2 * left[0] * left[1] * left[2] * right[2]

    formulas = {torch.ops.aten._grouped_mm: grouped_mm, torch.ops.aten.bmm: bmm}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    # for indexers that loop over the visible keys of each query
    nothing_masked = meta.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]
    with counter, torch.no_grad(), nothing_masked, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
    counts = counter.get_flop_counts()
    root = type(module).__name__
    own = {name: {str(op): flops for op, flops in ops.items()} for name, ops in counts.items()}
    del own["Global"]
    for name, ops in counts.items():
        parent = name.rpartition(".")[0]
        while parent and parent not in own:  # modules that are never called (lists) have no entry
            parent = parent.rpartition(".")[0]
        if parent in own and name in own:
            for operator, flops in ops.items():
                own[parent][str(operator)] -= flops
    for name, operators in own.items():
        for operator, flops in operators.items():
            yield name.removeprefix(root).removeprefix("."), operator, flops


def _weight_modules(tree: Node) -> Iterator[str]:
    """Modules that hold matrices themselves, as a leaf or as bare parameters."""
    for visit in walk(tree, expand=True):
        if any(tensor.kind in MATMUL_KINDS for tensor in visit.tensors):
            bare = not visit.tensors[0].name
            yield visit.path.rpartition(".")[0] if bare else visit.path


def _stream_readers(tree: Node) -> Iterator[str]:
    """Modules whose queries, often a single one, read vectors out of a token's residual streams."""
    for visit in walk(tree, expand=True):
        if isinstance(visit.leaf, StreamMix) and visit.leaf.rows is not None:
            yield visit.path.rpartition(".")[0]


def _owns_and_attends(tree: Node) -> bool:
    """Whether a module that text runs through has bare matrices and attends, so that both are its own products."""
    visits = [visit for visit in walk(tree) if visit.stream.source == "text"]
    attending = {visit.path.rpartition(".")[0] for visit in visits if isinstance(visit.leaf, Attention)}
    bare = {
        visit.path.rpartition(".")[0]
        for visit in visits
        for tensor in visit.tensors
        if not tensor.name and tensor.kind in MATMUL_KINDS
    }
    return bool(attending & bare)


def _scorers(tree: Node) -> Iterator[tuple[str, int]]:
    """(indexer, numbers in bare matrices of its own) of the modules that score keys."""
    visits = list(walk(tree, expand=True))
    for visit in visits:
        if isinstance(visit.leaf, IndexScores):
            place = visit.path.rpartition(".")[0]
            siblings = (other for other in visits if other.path.rpartition(".")[0] == place)
            bare = [other for other in siblings if isinstance(other.leaf, Weight)]
            yield place, sum(prod(t.shape) for other in bare for t in other.tensors if t.kind in MATMUL_KINDS)


def _routed_modules(tree: Node) -> Iterator[tuple[str, tuple[int, int]]]:
    """(module, (top_k, num_experts)) of the modules that hold fused experts."""
    for visit in walk(tree, expand=True):
        if visit.num_experts > 1 and any(tensor.kind == "experts" for tensor in visit.tensors):
            yield visit.path.rpartition(".")[0], (visit.top_k, visit.num_experts)


def _recurrent_modules(tree: Node) -> Iterator[str]:
    """Modules that run a recurrence."""
    for visit in walk(tree, expand=True):
        if isinstance(visit.leaf, Mixer) and not isinstance(visit.leaf, _JUDGED_MIXERS):
            yield visit.path.rpartition(".")[0]
