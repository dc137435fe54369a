"""Which columns of a table a model is trained on: not those that hold one value, nor those that repeat another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..storage.files import parts_of
from ._files import Array, listing


@dataclass(frozen=True)
class UsedColumns:
    """The columns of a table of ``count`` that vary and differ from each other.

    Attributes:
        count: D, all columns.
        constant: of every column that holds one value, its index and that value.
        copies: of every column that equals one before it in every row, its index and that column's.

    Example:
        >>> used = UsedColumns.of(np.array([[1.0, 5.0, 1.0], [2.0, 5.0, 2.0]]))
        >>> used.kept, used.constant, used.copies
        ([0], {1: 5.0}, {2: 0})
        >>> used.restore(np.array([[7.0]]))
        array([[7., 5., 7.]])
    """

    count: int
    constant: dict[int, float]
    copies: dict[int, int]

    @classmethod
    def of(cls, rows: Any) -> UsedColumns:
        """Of rows of an array, (N, D), N ≥ 1, read a part at a time."""
        first = np.asarray(rows[0])
        varies = np.zeros(len(first), dtype=bool)
        digests = [hashlib.blake2b(digest_size=16) for _ in first]
        for part in parts_of(rows):
            chunk = np.ascontiguousarray((rows[part] + 0.0).T)  # + 0.0 makes −0 equal to 0
            varies |= (chunk != first[:, None]).any(axis=1)
            for digest, column in zip(digests, chunk, strict=True):
                digest.update(column.data)
        constant = {int(i): float(first[i]) for i in np.flatnonzero(~varies)}
        seen: dict[bytes, int] = {}
        earlier = {i: seen.setdefault(digests[i].digest(), i) for i in range(len(first)) if i not in constant}
        return cls(len(first), constant, {i: other for i, other in earlier.items() if other != i})

    @cached_property
    def kept(self) -> list[int]:
        """The columns that are used, in their order."""
        return [i for i in range(self.count) if i not in self.constant and i not in self.copies]

    @property
    def left_out(self) -> list[int]:
        """The others, in the order of :meth:`off`."""
        return [*self.constant, *self.copies]

    @property
    def all(self) -> bool:
        """Whether every column is used."""
        return not self.constant and not self.copies

    def reasons(self, names: Sequence[str]) -> str:
        """Which columns are not used, and why; empty where all are."""
        parts = []
        if self.constant:
            found = [names[i] for i in self.constant]
            parts.append(f"{listing(found)} {'holds' if len(found) == 1 else 'hold'} one value")
        if self.copies:
            pairs = [f"'{names[i]}' equals '{names[other]}'" for i, other in self.copies.items()]
            parts.append(f"{listing(pairs, mark='')} in every row")
        return "; ".join(parts)

    def pick(self, rows: Array) -> Array:
        """The columns that are used, (N, D) → (N, kept)."""
        return rows if self.all else rows[:, self.kept]

    def restore(self, rows: Array) -> Array:
        """The inverse: columns that were left out as they were, (N, kept) → (N, D), in a precision that has their values."""
        if self.all:
            return rows
        whole = np.empty((len(rows), self.count), dtype=self.precision(rows.dtype))
        whole[:, self.kept] = rows
        for i, value in self.constant.items():
            whole[:, i] = value
        for i, other in self.copies.items():
            whole[:, i] = whole[:, other]
        return whole

    def precision(self, kind: Any) -> np.dtype[Any]:
        """The type of number, as wide as ``kind`` or wider, that has the values of constant columns."""
        exact = all(float(np.asarray(value, dtype=kind)) == value for value in self.constant.values())
        return np.dtype(kind if exact else np.float64)

    def spread(self, values: Array) -> Array:
        """Values of the columns that are used, with 0 for the others, (N, kept) → (N, D)."""
        if self.all:
            return values
        whole = np.zeros((len(values), self.count), dtype=values.dtype)
        whole[:, self.kept] = values
        return whole

    def off(self, rows: Array) -> Array:
        """Difference of the columns left out from what :meth:`restore` would give, (N, D) → (N, left out).

        Rows in float32 are compared in that precision.
        """
        if self.all:
            return np.zeros((len(rows), 0))
        expected = [np.full(len(rows), value, dtype=rows.dtype) for value in self.constant.values()]
        expected += [rows[:, other] for other in self.copies.values()]
        return np.asarray(rows[:, self.left_out] - np.stack(expected, axis=1), dtype=np.float64)

    def listed(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_list` reads it."""
        return {"count": self.count, "constant": _pairs(self.constant), "copies": _pairs(self.copies)}

    @classmethod
    def from_list(cls, listed: Mapping[str, Any]) -> UsedColumns:
        """The inverse of :meth:`listed`."""
        return cls(listed["count"], dict(map(tuple, listed["constant"])), dict(map(tuple, listed["copies"])))


@dataclass(frozen=True)
class WholeTable:
    """All columns of a table of which a model sees some.

    Attributes:
        names: of all columns.
        used: which of them the model sees.
        rows: n, the rows trained on, in which the others hold one value or repeat another.

    Example:
        >>> whole = WholeTable(("a", "b", "c"), UsedColumns(3, {1: 5.0}, {2: 0}), 100)
        >>> whole.seen, whole.others
        (('a',), ('b', 'c'))
        >>> whole.values(np.array([[7.0]]), {"b": np.array([6.0])})
        array([[7., 6., 7.]])
    """

    names: tuple[str, ...]
    used: UsedColumns
    rows: int

    @property
    def seen(self) -> tuple[str, ...]:
        """Names of the columns that the model sees."""
        return tuple(self.names[i] for i in self.used.kept)

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the columns that it does not see."""
        return tuple(self.names[i] for i in self.used.left_out)

    def values(self, seen: Array, more: Mapping[str, Array]) -> Array:
        """All columns of rows, (N, D): the others as they are given by name, or as they were in the rows trained on."""
        whole = self.used.restore(seen).astype(seen.dtype)
        for name, column in more.items():
            whole[:, self.names.index(name)] = column
        return whole

    def listed(self) -> dict[str, Any]:
        """As JSON and TOML have it; :meth:`from_list` reads it."""
        return {"names": list(self.names), "rows": self.rows, **self.used.listed()}

    @classmethod
    def from_list(cls, listed: Mapping[str, Any]) -> WholeTable:
        """The inverse of :meth:`listed`."""
        return cls(tuple(listed["names"]), UsedColumns.from_list(listed), listed["rows"])


def _pairs(values: Mapping[int, Any]) -> list[list[Any]]:
    return [list(pair) for pair in values.items()]
