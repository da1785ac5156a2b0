"""The tables of docs/conventions.md as the code has them; `python tests/conventions_doc.py` prints them."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from flopcalc import CONVENTIONS, Convention, facts
from flopcalc.conventions.printed import PRINTED
from flopcalc.conventions.words import STEPS

COLUMNS = ("pairs", "window", "chunk", "sparse", "embedding", "router", "norms", "delta rule", "Mamba-2", "indexer")
COLUMNS += ("towers", "MTP", "frozen")
IN_TABLE = {"pairs", "window", "chunk", "sparse", "delta_rule", "delta_state", "mamba2", "mamba", "linear_attention"}
IN_TABLE |= {"indexer_scores", "towers", "mtp", "frozen"}
KINDS_IN_TABLE = {"embedding", "router", "norm"}


def tables() -> Iterator[str]:
    """Every line that the document must hold."""
    yield f"| | {' | '.join(COLUMNS)} |"
    yield from (f"| `{name}` | {' | '.join(cells(convention))} |" for name, convention in CONVENTIONS.items())
    yield from (f"* `{name}`: {convention.source}." for name, convention in CONVENTIONS.items() if convention.source)
    for name, convention in CONVENTIONS.items():
        if phrases := list(besides(convention)):
            yield f"* `{name}` {'; '.join(phrases)}."
    yield from readings()
    yield from printed("")
    yield from printed("fault")


def cells(convention: Convention) -> list[str]:
    state = "dv*dv" if convention.delta_state == "value_value" else "dk*dv"
    small = {"norm", "bias", "vector"} <= convention.weights
    return [
        convention.pairs,
        convention.window,
        convention.chunk,
        convention.sparse,
        "yes" if "embedding" in convention.weights else "no",
        "yes" if "router" in convention.weights else "no",
        "yes" if small else "no",
        f"{3 * convention.delta_rule} {state}" if convention.delta_rule else "0",
        str(3 * convention.mamba2),
        convention.indexer_scores,
        convention.towers.replace("_", " "),
        convention.mtp,
        convention.frozen,
    ]


def besides(convention: Convention) -> Iterator[str]:
    """What the table has no column for, what holds for single types, and `as_printed`."""
    yield from words(CONVENTIONS["standard"], convention, aside=True)
    types: dict[str, list[str]] = {}
    for model_type in convention.overrides:
        phrase = "; ".join(words(convention, convention.for_model(model_type)))
        types.setdefault(phrase, []).append(f"`{model_type}`")
    yield from (f"for {', '.join(names)} alone: {phrase}" for phrase, names in types.items())
    if convention.printed:
        yield f"`as_printed`: {'; '.join(words(convention, convention.as_printed))}"


def words(before: Convention, after: Convention, *, aside: bool = False) -> Iterator[str]:
    for step in STEPS:
        shown = step.knob in IN_TABLE or (step.knob == "weights" and step.kinds & KINDS_IN_TABLE)
        if step.apply(before, after) is not before and not (aside and shown):
            yield step.words(before, after)


def readings() -> Iterator[str]:
    """Types that a counter does not know, and those that it reads wrongly."""
    for name, found in PRINTED.items():
        types: dict[str, list[str]] = {}
        for model_type, fault in found.faults.items():
            types.setdefault(fault, []).append(f"`{model_type}`")
        phrases = [f"{', '.join(names)}: {fault}" for fault, names in types.items()]
        if found.always:
            phrases.append(f"any other type: {found.always}")
        if found.known is not None:
            phrases.append(f"any type but {', '.join(f'`{known}`' for known in sorted(found.known))}: {found.unknown}")
        yield f"* `{name}`. {'; '.join(phrases)}."


def printed(column: str) -> Iterator[str]:
    """Rows of printed numbers: those that are the rule's (""), or those with a fault."""
    path = facts.folder("registry") / "published" / "counters.csv"
    for row in csv.DictReader(path.open(encoding="utf-8", newline="")):
        if bool(row["fault"]) != bool(column):
            continue
        number, rule = (f"{int(row[name]):,}" if row["unit"] == "total" else row[name] for name in ("printed", "rule"))
        model = row["model"] + (f", {row['mtp']} MTP" if row["mtp"] != "0" else "")
        where = f"| `{row['convention']}` | {model} | {int(row['seq_len']):,} | {row['unit']} "
        yield where + (f"| {number} | {rule} | {row['fault']} |" if column else f"| {number} |")


if __name__ == "__main__":
    print("\n".join(tables()))
