"""Which (query, key) pairs does a document of n tokens touch?

Every span answers under these rules, and a convention picks one:

* `dense`  each query reads as many keys as the widest one: n*n, or n*min(n, w) for a window;
           no causal discount (the PaLM / torchtitan habit).
* `exact`  causal pairs, key by key: n(n+1)/2, or the sum over queries of min(i, w).
* `masked` what an eager implementation multiplies before it masks: n*n whatever the window.
           This is what an operator counter sees, so `flopcalc verify` uses it.

Limits also answer under three rules that single counters of the field use, and which they share with
"half of dense" for what has no limit:

* `unbounded`  n*w even where the document is shorter than w.
* `continuous` twice the area that a limit cuts out of the causal triangle, 2*n*m - m*m, m = min(n, w);
               twice, so that it stays whole.
* `beyond`     twice the exact pairs of a document longer than the window, n*n of a shorter one.

`n` is a Python int (any size) or a numpy integer array; `minimum` is `min` or `numpy.minimum` to
match. The results are exact integers; the caller keeps arrays inside their range (see `bound`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flopcalc.errors import InvalidBatch

if TYPE_CHECKING:
    from flopcalc.batch import Grid

Rule = Literal["dense", "exact", "masked", "unbounded", "continuous", "beyond"]
Minimum = Callable[[Any, Any], Any]

__all__ = [
    "Bidirectional", "BidirectionalChunk", "BidirectionalWindow", "BlockContext", "BlockPositions", "BlockSparse",
    "Blocks", "Chunk", "Compressed", "Full", "GridWindow", "Hashes", "Lagged", "LocalBlocks", "NearChunks",
    "OwnPatch", "Pooled", "Probe", "Rule", "Span", "Sum", "TopK", "Video", "Window",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """Base of all spans: a value, equal to another with the same fields."""

    def parts(self) -> tuple[Span, ...]:
        """The spans that this one is a sum of; itself for a plain one."""
        return (self,)

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        """Pairs of a document of n tokens: an int for an int, an array for an array."""
        raise NotImplementedError

    def grid_pairs(self, grid: Grid, n: int, rule: Rule) -> int:
        """Pairs of an image or video whose frames hold n tokens each: every frame by itself."""
        return grid.frames * int(self.pairs(n, rule))


@dataclass(frozen=True, slots=True)
class Full(Span):
    """Causal attention over the whole document."""

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return n * (n + 1) // 2 if rule == "exact" else n * n


@dataclass(frozen=True, slots=True)
class Bidirectional(Span):
    """Every token reads every token (encoders, vision towers): n*n under each rule."""

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return n * n


@dataclass(frozen=True, slots=True)
class Video(Bidirectional):
    """Every patch of a video reads those of all its frames."""

    def grid_pairs(self, grid: Grid, n: int, rule: Rule) -> int:
        return (grid.frames * n) ** 2


@dataclass(frozen=True, slots=True)
class BidirectionalChunk(Bidirectional):
    """Every token reads those of its chunk of `size`, before and after itself: with n = q*c + r,
    q*c*c + r*r under each rule."""

    size: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return n // self.size * self.size**2 + (n % self.size) ** 2


@dataclass(frozen=True, slots=True)
class BlockContext(Bidirectional):
    """Every token reads those up to `left` before and up to `right` after itself, and itself.

    dense n*min(n, left + 1 + right); exact the causal windows to either side, less the token itself;
    masked: each block of `size` tokens, the last one filled up, meets whatever one of its tokens reads,
    or as many as are `multiplied`.
    """

    size: int
    left: int
    right: int
    multiplied: int | None = None

    @property
    def reach(self) -> int:
        """Tokens that one reads at most."""
        return self.left + 1 + self.right

    @property
    def meets(self) -> int:
        """What each query of a block is multiplied with."""
        return self.left + self.size + self.right if self.multiplied is None else self.multiplied

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        if rule == "masked":
            return -(-n // self.size) * self.size * self.meets
        if rule == "exact":
            before, behind = (Window(reach + 1).pairs(n, rule, minimum) for reach in (self.left, self.right))
            return before + behind - n
        return n * minimum(n, self.reach)


@dataclass(frozen=True, slots=True)
class BlockPositions(BlockContext):
    """Where each token stands to those of its BlockContext, one vector for each distance; as many pairs,
    but masked: every query of a filled block meets all distances."""

    @property
    def meets(self) -> int:
        return self.reach if self.multiplied is None else self.multiplied


@dataclass(frozen=True, slots=True)
class Pooled(Bidirectional):
    """Every token reads one key for each `rate` of them: n*(n//rate) under each rule."""

    rate: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return n * (n // self.rate)


@dataclass(frozen=True, slots=True)
class BlockSparse(Bidirectional):
    """BigBird's attention: every block of `size` tokens reads itself and its neighbours, the first and
    last block and `random` others; those two, and all blocks of a document of at most 5 + 2*random
    blocks, read everything.

    Of m blocks two read m, two (beside an end, which is a neighbour too) 4 + random, the rest
    5 + random: size*size * ((7 + random)*m - 12 - 2*random), the last block being filled up.
    """

    size: int
    random: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        blocks = -(-n // self.size)
        sparse = self.size**2 * ((7 + self.random) * blocks - 12 - 2 * self.random)
        return n * n + (n > (5 + 2 * self.random) * self.size) * (sparse - n * n)


@dataclass(frozen=True, slots=True)
class Probe(Bidirectional):
    """So many queries, which read all n tokens of an image: queries * n pairs under each rule."""

    queries: int = 1

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return self.queries * n


@dataclass(frozen=True, slots=True)
class GridWindow(Span):
    """Attention inside squares of `side` x `side` patches of a frame, smaller ones at its edges:
    with h rows in blocks of h_i and w columns in blocks of w_j, the sum of (h_i * w_j)**2."""

    side: int

    def grid_pairs(self, grid: Grid, n: int, rule: Rule) -> int:
        if grid.height is None or grid.width is None:
            raise InvalidBatch(
                f"images: found {grid.patches} patches, expected (frames, height, width) in patches: "
                f"this tower attends in windows of {self.side} x {self.side}"
            )
        blocks = Chunk(self.side)
        return grid.frames * int(blocks.pairs(grid.height, "dense") * blocks.pairs(grid.width, "dense"))


@dataclass(frozen=True, slots=True)
class Window(Span):
    """Each query reads at most `size` keys, itself included: a sliding window.

    dense n*min(n, w); exact sum over i of min(i, w) = m(m+1)/2 + (n-m)*m with m = min(n, w).
    """

    size: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        if rule == "masked":
            return n * n
        if rule == "unbounded":
            return n * self.size
        reach = minimum(n, self.size)
        if rule == "dense":
            return n * reach
        if rule == "continuous":
            return (2 * n - reach) * reach
        exact = reach * (reach + 1) // 2 + (n - reach) * reach
        return exact if rule == "exact" else 2 * exact - n * (n == reach)


@dataclass(frozen=True, slots=True)
class NearChunks(Span):
    """Reformer's causal attention: every token reads its chunk of `size` and as many chunks `before`, in
    each of `rounds` orders of the tokens; a document of one chunk is read in full.

    exact, in the order of the text: with n = q*c + r, the triangles of the chunks and c keys of each
    chunk before, `before` at most.
    """

    size: int
    before: int
    rounds: int = 1

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        size, chunks, rest = self.size, n // self.size, n % self.size
        if rule == "exact":
            full = n * (n + 1) // 2
            ramp = minimum(chunks, self.before)
            earlier = ramp * (ramp - 1) // 2 + (chunks - ramp) * self.before
            triangles = chunks * (size * (size + 1) // 2) + rest * (rest + 1) // 2
            near = triangles + size * size * earlier + size * rest * ramp
        else:
            full = n * n
            near = -(-n // size) * size**2 * (1 + self.before)
        return full + (n > size) * (self.rounds * near - full)


@dataclass(frozen=True, slots=True)
class Hashes(Bidirectional):
    """Directions that each token is compared with to hash it into buckets, in each of `rounds`: half
    as many as there are buckets; none in a document of one chunk of `size`.

    `buckets` None: the power of two up to twice the number of chunks, or, beyond `limit` buckets, the
    sum of two such factors (`_set_num_buckets` of transformers' Reformer).
    """

    size: int
    rounds: int
    buckets: int | None
    limit: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        chunks = -(-n // self.size)
        if self.buckets is None:
            power: Any = sum(2 * chunks >= 1 << bit for bit in range(1, 63))  # floor of the logarithm
            buckets: Any = 1 << power
            factors = (1 << power // 2) + (1 << power - power // 2)
            buckets = buckets + (buckets > self.limit) * (factors - buckets)
        else:
            buckets = self.buckets
        return (n > self.size) * (chunks * self.size * self.rounds * (buckets // 2))


@dataclass(frozen=True, slots=True)
class Lagged(Span):
    """Each query reads what stands `lag` tokens back or further, the first token at least.

    dense n*n; exact sum over i of max(i - lag, 1) = m(m+1)/2 + n - m with m = n - min(n, lag).
    """

    lag: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        if rule != "exact":
            return n * n
        reach = n - minimum(n, self.lag)
        return reach * (reach + 1) // 2 + n - reach


@dataclass(frozen=True, slots=True)
class TopK(Window):
    """The `size` keys that an indexer picked for each query: as many as in a window, whichever they are."""


@dataclass(frozen=True, slots=True)
class Blocks(TopK):
    """The tokens of the blocks of `block` that an indexer picked, `size` at most, and those of the
    block that the query itself has not yet filled: for query i > w (from 1) that is w + i mod b.

    dense as a window; exact adds the sum of i mod b = q*b(b-1)/2 + r(r+1)/2, max(n - w, 0) = q*b + r.
    """

    block: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        picked = TopK.pairs(self, n, rule, minimum)
        if rule != "exact":
            return picked
        beyond = n - minimum(n, self.size)
        filled, rest = beyond // self.block, beyond % self.block
        return picked + filled * (self.block * (self.block - 1) // 2) + rest * (rest + 1) // 2


@dataclass(frozen=True, slots=True)
class LocalBlocks(TopK):
    """The blocks of `block` tokens that an indexer picked, `size` tokens at most; the block that the query
    stands in is one of them and read as far as the query.

    dense as a window; exact: with w = size - block, query i > w (from 1) reads w + (i - 1 - w) mod block + 1,
    those before it i.
    """

    block: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        if rule != "exact":
            return TopK.pairs(self, n, rule, minimum)
        others = self.size - self.block
        before = minimum(n, others)
        beyond = n - before
        return before * (before + 1) // 2 + beyond * others + Chunk(self.block).pairs(beyond, rule, minimum)


@dataclass(frozen=True, slots=True)
class BidirectionalWindow(Span):
    """Each token reads those closer than `reach` on either side, itself included.

    dense n*min(n, 2*reach - 1); exact twice the causal window of `reach`, less the token itself.
    """

    reach: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        if rule == "exact":
            return 2 * Window(self.reach).pairs(n, rule, minimum) - n
        return Window(2 * self.reach - 1).pairs(n, rule, minimum)


@dataclass(frozen=True, slots=True)
class Chunk(Span):
    """Attention inside blocks of `size` tokens (llama4): with n = q*c + r,
    dense q*c*c + r*r; exact q*c(c+1)/2 + r(r+1)/2."""

    size: int

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        if rule == "masked":
            return n * n
        blocks, rest = n // self.size, n % self.size
        squares = blocks * self.size**2 + rest * rest
        return squares if rule == "dense" else (squares + n) // 2


class Tokens(Protocol):
    """What a token stream says of the vectors that it makes of n tokens (`tree.Stream`)."""

    @property
    def rows(self) -> int: ...

    def tokens(self, n: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class OwnPatch(Span):
    """Every token meets the vectors of the one patch that it is part of, which it reads or which read it:
    n*rows under each rule; masked all vectors."""

    patches: Tokens

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return n * (self.patches.tokens(n) if rule == "masked" else self.patches.rows)


@dataclass(frozen=True, slots=True)
class Compressed(Span):
    """Each query reads compressed entries, one per `rate` tokens, at most `top_k` of them.

    dense n*min(n//rate, k). exact: query i (from 1) sees the floor(i/rate) entries closed by then;
    the sum over i of min(k, floor(i/rate)) = rate*c(c-1)/2 + c*(n - c*rate + 1), c = min(n//rate, k).
    """

    rate: int
    top_k: int | None = None

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        entries = n // self.rate
        if rule == "masked":
            return n * entries
        if self.top_k is not None:
            entries = minimum(entries, self.top_k)
        if rule == "dense":
            return n * entries
        if rule == "unbounded":
            return n * (entries if self.top_k is None else self.top_k)
        if rule == "continuous":
            return (2 * n - self.rate * entries) * entries
        return self.rate * (entries * (entries - 1) // 2) + entries * (n - entries * self.rate + 1)


@dataclass(frozen=True, slots=True)
class Sum(Span):
    """One softmax over several key sets, as DeepSeek-V4's window plus its compressed entries."""

    terms: tuple[Span, ...]

    def parts(self) -> tuple[Span, ...]:
        return tuple(part for term in self.terms for part in term.parts())

    def pairs(self, n: Any, rule: Rule, minimum: Minimum = min) -> Any:
        return sum(part.pairs(n, rule, minimum) for part in self.parts())
