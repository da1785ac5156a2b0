"""The bar chart of a plan."""

from __future__ import annotations

from pathlib import Path

from flopcalc.packing.plan import Plan
from flopcalc.plots import figure_for

__all__ = ["draw"]


def draw(plan: Plan, path: str | Path, title: str = "") -> None:
    """Draw what each rank does and how long it idles, and the tokens of its micro-batches.

    Raises InvalidOption without matplotlib, or for a format that it does not write.
    """
    figure = figure_for(path, 9, 5.5)
    ranks = range(plan.num_ranks)
    busy = [flops / max(plan.makespan, 1) for flops in plan.rank_flops]
    work, tokens = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    work.bar(ranks, busy, width=1.0, color="#4477aa", edgecolor="white", linewidth=0.3, label="working")
    work.bar(ranks, [1 - share for share in busy], width=1.0, bottom=busy, color="#ee7733", label="waiting")
    work.set(ylim=(0, 1.02), ylabel="share of the makespan")
    work.legend(loc="lower right")
    if plan.num_micro_batches:
        fewest, most = plan.tokens.min(axis=1), plan.tokens.max(axis=1)
        tokens.bar(ranks, most - fewest, bottom=fewest, width=1.0, color="#228833", label="smallest to largest")
        tokens.plot(ranks, plan.tokens.mean(axis=1), ".", color="black", markersize=2, label="mean")
    if plan.max_tokens is not None:
        tokens.axhline(plan.max_tokens, color="black", linestyle=":", linewidth=1, label="cap")
    tokens.set(xlim=(-0.5, plan.num_ranks - 0.5), xlabel="rank", ylabel="tokens of a micro-batch", ylim=(0, None))
    tokens.legend(loc="lower right")
    summary = f"{plan.num_micro_batches} micro-batches a rank, imbalance {plan.imbalance:.4f}"
    figure.suptitle(f"{title}: {summary}" if title else summary, fontsize=11)
    figure.savefig(path)
