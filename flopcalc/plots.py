"""Pictures, drawn with matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from flopcalc.conventions import Convention
from flopcalc.counting import FlopCounter, Phase
from flopcalc.errors import InvalidOption
from flopcalc.training import Training

__all__ = ["figure_for", "plot_flops_per_token"]

LENGTHS = tuple(round(2 ** (power / 4)) for power in range(36, 69))
"""Document lengths in tokens: 512 to 131,072."""
TICKS = (512, 2048, 8192, 32768, 131072)

BANDS = {
    "projections": ("linear", "adapter"),
    "experts and routers": ("experts", "router", "shared_gate"),
    "output head": ("head",),
    "input embedding": ("embedding",),
    "recurrences": ("delta_rule", "mamba2", "mamba", "linear_attention"),
    "indexer scores": ("index_scores",),
    "attention core": ("attention",),
}
"""Kinds of work in each band, from the bottom up; the rest is the last band."""
REST = "norms and small parts"
COLORS = {
    "projections": "#4477aa",
    "experts and routers": "#66ccee",
    "output head": "#228833",
    "input embedding": "#aa3377",
    "recurrences": "#ccbb44",
    "indexer scores": "#882255",
    "attention core": "#ee7733",
    REST: "#999999",
}


class Panel(NamedTuple):
    """Conventions that count the same, and FLOPs per token at each length: of each band that can be
    seen, and in all."""

    names: tuple[str, ...]
    bands: dict[str, list[float]]
    totals: list[float]


def figure_for(path: str | Path, width: float, height: float) -> Any:
    """An empty matplotlib figure, in inches, that can be saved to that file.

    Raises InvalidOption without matplotlib, or for a format that it does not write.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidOption(f"--plot needs matplotlib: pip install 'flopcalc[plot]' ({error})") from None
    formats = sorted(FigureCanvasAgg.get_supported_filetypes())
    if Path(path).suffix.removeprefix(".").lower() not in formats:
        raise InvalidOption(f"--plot: found {str(path)!r}, expected a file that ends in .{', .'.join(formats)}")
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def plot_flops_per_token(
    tree: Any,
    conventions: Sequence[Convention],
    path: str | Path,
    *,
    title: str,
    seq_len: int | None = None,
    phase: Phase = "train",
    training: Training | None = None,
) -> None:
    """Draw FLOPs per token of one document against its length, stacked by kind of work: a panel for
    each convention (one for those that look the same), all on one scale, with the first one's total
    as a line in the others.

    Args:
        tree: a model in any form that `FlopCounter` takes.
        path: the file to write; its ending says the format.
        seq_len: a length to mark, in tokens, at which the totals are compared; the longest where None.

    Raises InvalidOption without matplotlib, or for a format that it does not write.
    """
    lengths = sorted({*LENGTHS, seq_len or LENGTHS[-1]})
    compared = lengths.index(seq_len or LENGTHS[-1])
    panels = _panels([FlopCounter(tree, convention, phase, training) for convention in conventions], lengths)
    first = panels[0].totals
    # a panel that towers over the first one is cut off, so as not to flatten the others
    highest = min(max(max(panel.totals) for panel in panels), 1.3 * max(first))
    scale, unit = _unit(highest)

    columns = min(4, len(panels))
    rows = ceil(len(panels) / columns)
    figure = figure_for(path, max(3.2 * columns, 7), 2.6 * rows + 1.6)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    legend: dict[str, Any] = {}
    for axis, panel in zip(axes, panels, strict=False):
        layers = [[value / scale for value in values] for values in panel.bands.values()]
        areas = axis.stackplot(lengths, layers, colors=[COLORS[name] for name in panel.bands])
        legend.update(zip(panel.bands, areas, strict=True))
        heading = _wrapped(panel.names)
        if panel is not panels[0]:
            (line,) = axis.plot(lengths, [total / scale for total in first], "k--", linewidth=1.2)
            legend[f"total of {panels[0].names[0]}"] = line
            heading += f": {panel.totals[compared] / first[compared]:.3f}x"
        if seq_len is not None:
            axis.axvline(seq_len, color="black", linestyle=":", linewidth=1)
        axis.set_title(heading, fontsize=9)
        axis.set_xscale("log", base=2)
        axis.set(xlim=(lengths[0], lengths[-1]), ylim=(0, 1.03 * highest / scale))
        axis.set_xticks(TICKS, [_tokens(n) for n in TICKS], fontsize=8)
        axis.tick_params(axis="y", labelsize=8)
        axis.grid(alpha=0.3)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis in axes[max(len(panels) - columns, 0) : len(panels)]:
        axis.tick_params(labelbottom=True)
        axis.set_xlabel("document length (tokens)", fontsize=8)
    what = f"{title}: {'training' if phase == 'train' else 'forward'} FLOPs per token"
    note = f"\nx: of the total of {panels[0].names[0]} at {lengths[compared]:,} tokens" if len(panels) > 1 else ""
    figure.suptitle(what + note, fontsize=11)
    figure.supylabel(f"{unit} per token", fontsize=10)
    names = sorted(legend, key=[*BANDS, REST, *legend].index)
    handles = [legend[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 2 * columns, 5), frameon=False)
    figure.savefig(path)


def _panels(counters: Sequence[FlopCounter], lengths: Sequence[int]) -> list[Panel]:
    panels: list[Panel] = []
    for counter in counters:
        name, (bands, totals) = counter.convention.name, _bands(counter, lengths)
        same = next((i for i, panel in enumerate(panels) if panel.bands == bands), None)
        if same is None:
            panels.append(Panel((name,), bands, totals))
        else:
            panels[same] = panels[same]._replace(names=(*panels[same].names, name))
    return panels


def _bands(counter: FlopCounter, lengths: Sequence[int]) -> tuple[dict[str, list[float]], list[float]]:
    """FLOPs per token of each band at each length, and the totals; a band below a thousandth of all
    joins the rest, and so small a rest is left out."""
    kinds = [counter.by_kind([n]) for n in lengths]
    totals = [sum(by_kind.values()) / n for by_kind, n in zip(kinds, lengths, strict=True)]
    bands = {
        name: [sum(by_kind.get(kind, 0) for kind in members) / n for by_kind, n in zip(kinds, lengths, strict=True)]
        for name, members in BANDS.items()
    }
    seen = {name: values for name, values in bands.items() if max(values) > max(totals) / 1000}
    rest = [total - sum(values) for total, values in zip(totals, zip(*seen.values(), strict=True), strict=True)]
    return ({**seen, REST: rest} if max(rest) > max(totals) / 1000 else seen), totals


def _unit(largest: float) -> tuple[float, str]:
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if largest >= 10**power:
            return 10.0**power, f"{prefix}FLOPs"
    return 1.0, "FLOPs"


def _tokens(n: int) -> str:
    return f"{n // 1024}k" if n >= 1024 else str(n)


def _wrapped(names: Sequence[str]) -> str:
    return ",\n".join(", ".join(names[i : i + 2]) for i in range(0, len(names), 2))
