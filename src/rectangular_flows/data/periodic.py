"""Columns that are angles: which, with what period, and in what range their values are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..spelling import nearest
from ._files import Array, DataError, listing

_NAMED = {"degrees": 360.0, "radians": 2 * math.pi}
_WIDE = 0.25  # of a period, that values have to span for it to be guessed
_NARROW, _ROUND = 0.05, 1e-6
_HOW = "Give its period: {0}:degrees, {0}:radians, or a number as in {0}:24"


@dataclass(frozen=True)
class PeriodicColumn:
    """A column whose values are angles.

    Attributes:
        column: its number, from 0.
        name: of it.
        period: in its units.
        start: where its range begins: values come back in [start, start + period).
        largest: of its values, without their sign.
        guessed: whether the period was.
        note: what else the user should know; empty where there is nothing.
    """

    column: int
    name: str
    period: float
    start: float
    largest: float
    guessed: bool = False
    note: str = ""

    @property
    def spelled(self) -> str:
        """As the setting ``periodic`` has it, with nothing left to guess."""
        words = {period: word for word, period in _NAMED.items() if word == "radians"}
        return f"{self.name}:{words.get(self.period) or f'{self.period:.17g}'}"


Asked = str | Sequence[str | int] | Mapping[str, float | str]


def periodic_columns(asked: Asked, values: Array, names: Sequence[str], source: str) -> tuple[PeriodicColumn, ...]:
    """The periodic columns of a table.

    Args:
        asked: names or positions from 1, each with its period: "hour:24", "wind:degrees", "phase:radians". Without one, it
            is guessed from the range of the values. "all" for every column, "all:degrees" with one period for all. Or a
            mapping from names to periods.
        values: (N, D).
        names: of the D columns.
        source: of the table, for messages.

    Raises:
        DataError: there is no such column, a period is none, or cannot be guessed.

    Example:
        >>> x = np.stack([np.arange(24.0), np.arange(24.0) * 15], axis=1)
        >>> [found.spelled for found in periodic_columns(["hour:24", "wind"], x, ["hour", "wind"], "X")]
        ['hour:24', 'wind:360']
    """
    if isinstance(asked, Mapping):
        wanted = [(_place(str(name), names, source), str(period)) for name, period in asked.items()]
    else:
        words = [asked] if isinstance(asked, str) else [str(word) for word in asked]
        wanted = [pair for word in words for pair in _read(word.strip(), names, source)]
    places = [place for place, _ in wanted]
    if len(set(places)) < len(places):
        twice = [names[place] for place in sorted(set(places)) if places.count(place) > 1]
        raise DataError(f"Expected each periodic column once; got {listing(twice)} more than once.")
    return tuple(
        _column(place, names[place], text, np.asarray(values[:, place], dtype=np.float64), source)
        for place, text in sorted(wanted)
    )


def _read(word: str, names: Sequence[str], source: str) -> list[tuple[int, str]]:
    """Places and periods that one word stands for; a column may have a colon in its name."""
    name, colon, text = (word, "", "") if word in names else word.rpartition(":")
    if not colon:
        name, text = word, ""
    if name == "all" and name not in names:
        return [(i, text) for i in range(len(names))]
    return [(_place(name, names, source), text)]


def _place(name: str, names: Sequence[str], source: str) -> int:
    if name in names:
        return list(names).index(name)
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise DataError(
        f"{source} has no column '{name}' to be periodic: expected one of {listing(names, 12)}, a position from 1 to "
        f"{len(names)}, or all.{nearest(name, names)}"
    )


def _column(place: int, name: str, text: str, values: Array, source: str) -> PeriodicColumn:
    low, high = float(values.min()), float(values.max())
    whole = bool((values == np.round(values)).all())
    period, guessed = (_period(name, text), False) if text else (_guessed(name, low, high, whole, source), True)
    if whole and high == period and low > 0:  # 1 to 7, 1 to 12, 1 to 24: rounded samples are then among them
        start = 0.5
    elif low >= 0:
        start = 0.0
    else:
        start = -period if high <= 0 and low < -period / 2 else -period / 2
    share, shown = (high - low) / period, f"{name}: period {period:.6g}"
    if share > 1 + _ROUND:
        note = (
            f"{shown}, though its values span {share:.3g} periods, {low:.4g} to {high:.4g}: whole periods are taken off"
        )
    elif share < _NARROW:
        note = f"{shown}, though its values span only {share:.2g} of it, {low:.4g} to {high:.4g}: is the period right?"
    else:
        note = ""
    return PeriodicColumn(place, name, period, start, max(abs(low), abs(high)), guessed, note)


def notes_on(columns: Sequence[PeriodicColumn]) -> list[str]:
    """What the user should know of periodic columns."""
    words = {period: word for word, period in _NAMED.items()}
    guesses = {p: [found.name for found in columns if found.guessed and found.period == p] for p in words}
    texts = [f"{words[p]} guessed from the values of {listing(names)}" for p, names in guesses.items() if names]
    return [*texts, *(found.note for found in columns if found.note)]


def _period(name: str, text: str) -> float:
    try:
        period = _NAMED[text.strip()] if text.strip() in _NAMED else float(text)
    except ValueError:
        period = math.nan
    if not 0 < period < math.inf:
        raise DataError(f"Expected a period for column '{name}'; got '{text}'. {_HOW.format(name)}.")
    return period


def _guessed(name: str, low: float, high: float, whole: bool, source: str) -> float:
    for period in (360.0,) if whole else (2 * math.pi, 360.0):  # whole numbers are no radians
        within = (low >= 0 and high <= period * (1 + _ROUND)) or max(-low, high) <= period / 2 * (1 + _ROUND)
        if within and high - low >= _WIDE * period:
            return period
    raise DataError(
        f"Cannot tell the period of column '{name}' of {source}, with values from {low:.4g} to {high:.4g}. "
        f"{_HOW.format(name)}."
    )
