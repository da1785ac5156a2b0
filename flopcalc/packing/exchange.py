"""Local search: the heaviest owner gives work to a light one, by moving or swapping one document."""

from __future__ import annotations

from typing import Any

import numpy as np

from flopcalc.packing.pricing import Priced

__all__ = ["Exchange"]

_FINE = 1e-6  # an owner this little above the mean is not worth another look
_PARTNERS = 4  # light owners that are tried before the heaviest counts as stuck


class Exchange:
    """Documents lie in cells, cells belong to owners; an owner's load is the work in its cells.
    No cell comes to hold more than `cap` tokens or becomes empty.

    Args:
        cell: the cell of each document.
        owner: the owner of each cell, an int64 array.
        moves: whether an owner's number of documents may change; otherwise they only swap.
    """

    def __init__(self, documents: Priced, cell: Any, owner: Any, cap: int, *, moves: bool = True) -> None:
        # The last place is "nothing", which a document that only moves is swapped for.
        self._work = np.append(documents.work, 0)
        self._tokens = np.append(documents.tokens, 0)
        self._cell = np.append(cell, 0)
        self._owner, self._owner_of = owner, owner[cell]
        self._cap, self._moves = cap, moves
        self._filled = np.bincount(cell, documents.tokens, len(owner)).astype(np.int64)
        self._count = np.bincount(cell, minlength=len(owner))
        self._load = np.bincount(self._owner_of, documents.work, int(owner.max()) + 1).astype(np.int64)
        self._held: dict[int, Any] = {}

    @property
    def cell(self) -> Any:
        """The cell of each document as it is now."""
        return self._cell[:-1]

    def level(self, owners: Any, tries: int) -> None:
        """Lower the heaviest load among these owners, by at most `tries` exchanges."""
        fine = self._load[owners].mean() * (1 + _FINE)
        for _ in range(tries):
            ranked = owners[np.argsort(self._load[owners], kind="stable")].tolist()
            heavy, light = ranked[-1], ranked[:_PARTNERS]
            if self._load[heavy] <= fine or not any(self._relieve(heavy, owner) for owner in light):
                break

    def _relieve(self, heavy: int, light: int) -> bool:
        """Make the exchange that brings two loads closest; False where none does."""
        gap = int(self._load[heavy] - self._load[light])
        given, taken = self._documents(heavy), self._documents(light)
        if self._moves:
            cells = np.flatnonzero(self._owner == light)
            self._cell[-1] = cells[self._filled[cells].argmin()]
            taken = np.append(taken, len(self._work) - 1)
        near = np.searchsorted(-self._work[taken], gap // 2 - self._work[given])
        gives = np.concatenate([given, given])
        takes = taken[np.concatenate([near, near - 1]).clip(0, len(taken) - 1)]
        source, target = self._cell[gives], self._cell[takes]
        shift = self._work[gives] - self._work[takes]
        grows = self._tokens[gives] - self._tokens[takes]
        allowed = (
            (shift > 0)
            & (shift < gap)
            & (self._filled[target] + grows <= self._cap)
            & (self._filled[source] - grows <= self._cap)
            & ((takes < len(self._work) - 1) | (self._count[source] > 1))
        )
        if not allowed.any():
            return False
        best = int(np.where(allowed, abs(shift - gap // 2), gap).argmin())
        self._swap(int(gives[best]), int(takes[best]))
        return True

    def _swap(self, give: int, take: int) -> None:
        source, target = int(self._cell[give]), int(self._cell[take])
        for document, old, new in ((give, source, target), (take, target, source)):
            self._cell[document] = new
            self._filled[old] -= self._tokens[document]
            self._filled[new] += self._tokens[document]
            self._load[self._owner[old]] -= self._work[document]
            self._load[self._owner[new]] += self._work[document]
            self._held.pop(int(self._owner[old]), None)
        self._owner_of[give] = self._owner[target]
        if take < len(self._owner_of):
            self._owner_of[take] = self._owner[source]
        else:
            self._count[source] -= 1
            self._count[target] += 1

    def _documents(self, owner: int) -> Any:
        if owner not in self._held:
            self._held[owner] = np.flatnonzero(self._owner_of == owner)
        return self._held[owner]
