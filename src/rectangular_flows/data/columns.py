"""Which columns of a table a model is trained on: not those that hold one value, nor those that repeat another.

A column repeats another in other units as well: kilometres beside metres, degrees Fahrenheit beside Celsius.
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
_ROUNDING = 1e-9  # of a column's span, within which it repeats another


class InUnits(NamedTuple):
    """A column as another one in other units."""

    other: int
    """Index of that column."""
    slope: float
    intercept: float
    rounding: float
    """Difference up to which the rule holds."""

    def of(self, rows: Array) -> Array:
        """The column, from all columns (N, D)."""
        return np.asarray(self.slope * rows[:, self.other] + self.intercept)


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
        for i, (other, slope, intercept, _) in self.in_units.items():
            plus = f" {'+' if intercept > 0 else '−'} {abs(intercept):.6g}" if intercept else ""
            pairs.append(f"'{names[i]}' is {slope:.6g} × '{names[other]}'{plus}")
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
        for i, other in self.copies.items():
            whole[:, i] = whole[:, other]
        for i, rule in self.in_units.items():
            whole[:, i] = rule.of(whole)
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

        Rows in float32 are compared in that precision. Of columns in other units, what rounding may make is no difference.
        """
        if self.all:
            return np.zeros((len(rows), 0))
        expected = [np.full(len(rows), value, dtype=rows.dtype) for value in self.constant.values()]
        expected += [rows[:, other] for other in self.copies.values()]
        expected += [rule.of(rows) for rule in self.in_units.values()]
        off = np.asarray(rows[:, self.left_out] - np.stack(expected, axis=1), dtype=np.float64)
        for k, (i, rule) in enumerate(self.in_units.items(), start=len(self.constant) + len(self.copies)):
            steps = 4 * np.finfo(rows.dtype).eps * (np.abs(rows[:, i]) + abs(rule.intercept))
            off[np.abs(off[:, k]) <= rule.rounding + steps, k] = 0.0
        return off

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
    """Of every column that is one before it in other units, how."""
    count = len(rows)
    if count < _LEAST_ROWS or len(kept) < 2:
        return {}
    low, high = np.full(rows.shape[1], np.inf), np.full(rows.shape[1], -np.inf)
    for part in parts_of(rows):
        chunk = np.asarray(rows[part], dtype=np.float64)
        low, high = np.minimum(low, chunk.min(axis=0)), np.maximum(high, chunk.max(axis=0))
    span = high - low
    few = np.stack(
        [np.asarray(rows[i], dtype=np.float64) for i in np.linspace(0, count - 1, min(count, _TRIED), dtype=int)]
    )
    within = (few - low) / np.where(span > 0, span, 1.0)  # 0 to 1; of a falling slope, 1 to 0
    found: dict[int, InUnits] = {}
    for j, other in enumerate(kept):
        later = [i for i in kept[j + 1 :] if i not in found]
        if other in found or not later:
            continue
        rising = np.abs(within[:, later] - within[:, [other]]).max(axis=0) <= _ROUNDING
        falling = np.abs(1 - within[:, later] - within[:, [other]]).max(axis=0) <= _ROUNDING
        for i, up in [(i, bool(r)) for i, r, f in zip(later, rising, falling, strict=True) if r or f]:
            slope = float(span[i] / span[other]) * (1 if up else -1)
            intercept, rounding = float(low[i] - slope * (low if up else high)[other]), float(_ROUNDING * span[i])
            rule = InUnits(other, slope, intercept if abs(intercept) > rounding else 0.0, rounding)
            if all(
                bool((np.abs(part[:, i] - rule.of(part)) <= rule.rounding).all())
                for part in (np.asarray(rows[part], dtype=np.float64) for part in parts_of(rows))
            ):
                found[i] = rule
    return dict(sorted(found.items()))


def _pairs(values: Mapping[int, Any]) -> list[list[Any]]:
    return [list(pair) for pair in values.items()]
