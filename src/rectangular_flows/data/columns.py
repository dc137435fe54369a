"""Which columns of a table a model is trained on: not those that hold one value, nor those that repeat another.

A column repeats another in other units as well, as kilometres beside metres do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..storage.files import parts_of
from ._files import Array, listing

_LEAST_ROWS, _TRIED = 20, 64  # rows from which columns in other units are looked for, and rows to look at first
_SAME, _DIGITS = 1e-12, 9  # relative difference of a column in other units, and digits by which it is looked for
_ROUNDING = 1e-3  # of a column's spread, by which files may round it
_DIGITS_OF_FILES = 5e-6  # of a value, likewise: %.6g


class InUnits(NamedTuple):
    """A column as another one in other units: a multiple of it."""

    other: int
    """Index of that column."""
    factor: float
    rounding: float
    """Difference up to which a row keeps the rule."""


@dataclass(frozen=True)
class UsedColumns:
    """The columns of a table of ``count`` that vary and differ from each other.

    Attributes:
        count: D, all columns.
        constant: of every column that holds one value, its index and that value.
        copies: of every column that equals one before it in every row, its index and that column's.
        in_units: of every other column that is one before it in other units, its index and how.

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
    in_units: dict[int, InUnits] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Any, units: bool = True) -> UsedColumns:
        """Of rows of an array, (N, D), N ≥ 1, read a part at a time.

        Args:
            rows: the array.
            units: whether columns in other units are looked for too.
        """
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
        found = cls(len(first), constant, {i: other for i, other in earlier.items() if other != i})
        return replace(found, in_units=_in_units(rows, found.kept)) if units else found

    @cached_property
    def kept(self) -> list[int]:
        """The columns that are used, in their order."""
        return [i for i in range(self.count) if not (i in self.constant or i in self.copies or i in self.in_units)]

    @property
    def left_out(self) -> list[int]:
        """The others, in the order of :meth:`off`."""
        return [*self.constant, *self.copies, *self.in_units]

    @property
    def all(self) -> bool:
        """Whether every column is used."""
        return not (self.constant or self.copies or self.in_units)

    def reasons(self, names: Sequence[str]) -> str:
        """Which columns are not used, and why; empty where all are."""
        parts = []
        if self.constant:
            found = [names[i] for i in self.constant]
            parts.append(f"{listing(found)} {'holds' if len(found) == 1 else 'hold'} one value")
        pairs = [f"'{names[i]}' equals '{names[other]}'" for i, other in self.copies.items()]
        pairs += [f"'{names[i]}' is {rule.factor:.6g} × '{names[rule.other]}'" for i, rule in self.in_units.items()]
        if pairs:
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
        for i, rule in self.in_units.items():
            whole[:, i] = rule.factor * whole[:, rule.other]
        for i, other in self.copies.items():  # of these too
            whole[:, i] = whole[:, other]
        return whole

    def precision(self, kind: Any) -> np.dtype[Any]:
        """The type of number, as wide as ``kind`` or wider, that has the values of all columns left out."""
        exact = not self.in_units and all(
            float(np.asarray(value, dtype=kind)) == value for value in self.constant.values()
        )
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

        Rows in float32 are compared in that precision. Of columns in other units, what rounding may make is no difference.
        """
        if self.all:
            return np.zeros((len(rows), 0))
        expected = [np.full(len(rows), value, dtype=rows.dtype) for value in self.constant.values()]
        expected += [rows[:, other] for other in self.copies.values()]
        expected += [rule.factor * rows[:, rule.other] for rule in self.in_units.values()]
        off = np.asarray(rows[:, self.left_out] - np.stack(expected, axis=1), dtype=np.float64)
        least = np.zeros_like(off)
        steps = max(_DIGITS_OF_FILES, 4 * float(np.finfo(rows.dtype).eps))
        for k, (i, rule) in enumerate(self.in_units.items(), start=len(self.constant) + len(self.copies)):
            least[:, k] = np.maximum(rule.rounding, steps * np.abs(rows[:, i].astype(np.float64)))
        return np.where(np.abs(off) <= least, 0.0, off)

    def listed(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_list` reads it."""
        listed = {"count": self.count, "constant": _pairs(self.constant), "copies": _pairs(self.copies)}
        return listed | ({"in_units": [[i, *rule] for i, rule in self.in_units.items()]} if self.in_units else {})

    @classmethod
    def from_list(cls, listed: Mapping[str, Any]) -> UsedColumns:
        """The inverse of :meth:`listed`."""
        units = {i: InUnits(*rule) for i, *rule in listed.get("in_units", [])}
        return cls(listed["count"], dict(map(tuple, listed["constant"])), dict(map(tuple, listed["copies"])), units)


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


def _in_units(rows: Any, kept: Sequence[int]) -> dict[int, InUnits]:
    """Of every column that is a multiple of one before it, to the last digits, how."""
    if len(rows) < _LEAST_ROWS or len(kept) < 2:
        return {}
    places = np.linspace(0, len(rows) - 1, min(len(rows), _TRIED), dtype=int)
    few = np.stack([np.asarray(rows[i], dtype=np.float64) for i in places])
    found: dict[int, InUnits] = {}
    seen: dict[bytes, int] = {}
    for i in kept:
        column = few[:, i]
        at = int(np.abs(column).argmax())
        if not column[at] or len(np.unique(column)) < 2:  # few rows tell nothing of it
            continue
        other = seen.setdefault((np.round(column / column[at], _DIGITS) + 0.0).tobytes(), i)
        if other == i:
            continue
        with np.errstate(over="ignore"):
            factor = float(column[at] / few[at, other])
        if all(_multiple(np.asarray(rows[part][:, [other, i]], dtype=np.float64), factor) for part in parts_of(rows)):
            low, high = np.quantile(column, (0.25, 0.75))
            found[i] = InUnits(other, factor, _ROUNDING * float(high - low or column.std()))
    return found


def _multiple(pair: Array, factor: float) -> bool:
    """Whether the second of two columns is a multiple of the first."""
    return bool((np.abs(pair[:, 1] - factor * pair[:, 0]) <= _SAME * np.abs(pair[:, 1])).all())


def _pairs(values: Mapping[int, Any]) -> list[list[Any]]:
    return [list(pair) for pair in values.items()]
