"""Line charts: from numbers to paths, ticks and labels in relative coordinates. The template turns them into inline SVG.

Positions are relative (paths in a 1000 × 1000 box that the page stretches, ticks in percent), so that a chart fills any
width while its text and its lines keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BOX = 1000.0
_COLUMNS = 800  # about the width of a chart on a desktop, in pixels
_COLOURS = 6
_LARGEST = 1e300  # beyond it, differences of two values overflow
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_THIN_SPACE = "\u202f"

_Floats = NDArray[np.float64]
_Range = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One line of a chart: y against x. Values that are not finite make gaps."""

    label: str
    x: Sequence[float]
    y: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"Curve {self.label!r}: expected as many y as x, {len(self.x)}; got {len(self.y)}")


@dataclass(frozen=True)
class Chart:
    """A line chart. On a logarithmic y axis, values that are not positive make gaps.

    Args:
        curves: the lines, drawn in this order.
        x_label: what x is, with its unit.
        y_label: what y is, with its unit.
        title: a heading above the chart.
        log_y: whether the y axis is logarithmic.
        marker: an x to mark with a vertical line, for instance the step whose model was kept.
        marker_label: what the marker means.
    """

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    title: str = ""
    log_y: bool = False
    marker: float | None = None
    marker_label: str = ""


@dataclass(frozen=True)
class Tick:
    """A labelled position on an axis, in percent from the left or from the top."""

    position: float
    label: str


@dataclass(frozen=True)
class Line:
    """A curve as drawn: SVG paths for its lines and its lone points, and the values behind them for the tooltip."""

    label: str
    path: str
    dots: str
    x: str
    y: str
    colour: int
    dashed: bool
    dense: bool  # thinned, and better drawn with a finer pen


@dataclass(frozen=True)
class Drawing:
    """Everything the template needs; the y range of a logarithmic axis is in powers of ten. No lines: no data yet."""

    chart: Chart
    summary: str
    lines: Sequence[Line] = ()
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    x_range: _Range = (0.0, 1.0)
    y_range: _Range = (0.0, 1.0)
    marker: float | None = None

    @property
    def gutter(self) -> int:
        """Room for the y labels, in characters."""
        return max((len(tick.label) for tick in self.y_ticks), default=0)


def draw(chart: Chart) -> Drawing:
    """Lay a chart out.

    Example:
        >>> drawing = draw(Chart([Curve("loss", [0, 1, 2], [4.0, float("nan"), 1.0])], "epoch", "loss"))
        >>> [tick.label for tick in drawing.x_ticks], drawing.lines[0].dots
        (['0', '1', '2'], 'M0 53.6h0M1000 946.4h0')
    """
    name = f"Line chart of {chart.y_label} against {chart.x_label}"
    series = [_usable(curve, chart.log_y) for curve in chart.curves]
    x_all = np.concatenate([x[np.isfinite(x)] for x, _ in series]) if series else np.empty(0)
    if not x_all.size:
        return Drawing(chart, f"{name}: no data yet.")
    y_all = np.concatenate([y[np.isfinite(y)] for _, y in series])
    marker = chart.marker if chart.marker is not None and abs(chart.marker) < _LARGEST else None
    ends = x_all if marker is None else np.append(x_all, marker)
    x_range = _widened(float(ends.min()), float(ends.max()))
    y_range = _padded(*_widened(float(y_all.min()), float(y_all.max()), log=chart.log_y), stop_at_zero=not chart.log_y)

    lines, parts = [], []
    for number, (curve, (x, y)) in enumerate(zip(chart.curves, series, strict=True)):
        lines.append(_line(curve.label, x, y, x_range, y_range, chart.log_y, number))
        values = np.asarray(curve.y, dtype=float)[np.isfinite(y)]
        ends_text = f"from {format_number(values[0])} to {format_number(values[-1])}" if values.size else "no data yet"
        parts.append(f"{curve.label}: {ends_text}")
    x_ticks = round_ticks(*x_range, count=6, whole=bool((ends == np.round(ends)).all()))
    y_ticks = log_ticks(*y_range) if chart.log_y else round_ticks(*y_range, count=5)
    y_places = np.log10(y_ticks) if chart.log_y else np.asarray(y_ticks)
    return Drawing(
        chart,
        f"{name}. {'; '.join(parts)}.",
        lines,
        [Tick(100 * _place(t, x_range), text) for t, text in zip(x_ticks, tick_labels(x_ticks), strict=True)],
        [
            Tick(100 - 100 * _place(float(place), y_range), text)
            for place, text in zip(y_places, tick_labels(y_ticks, log=chart.log_y), strict=True)
        ],
        x_range,
        y_range,
        None if marker is None else 100 * _place(marker, x_range),
    )


def round_ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten between low and high, at most count + 1 of them.

    Example:
        >>> round_ticks(0.03, 1.07)
        [0.25, 0.5, 0.75, 1.0]
    """
    least = (high - low) / count
    power = 10.0 ** math.floor(math.log10(least))
    multiples = (1, 2, 5, 10) if whole and power <= 1 else (1, 2, 2.5, 5, 10)
    step = max(next(m * power for m in multiples if m * power >= least * (1 - 1e-9)), 1.0 if whole else 0.0)
    decimals = 1 - math.floor(math.log10(step))  # takes the noise off 3 × 0.1
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, decimals) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between 10^low and 10^high: powers of ten, or finer where the range has few of them.

    Example:
        >>> log_ticks(-2.1, 1.2), log_ticks(0.1, 1.1)
        ([0.01, 0.1, 1.0, 10.0], [2.0, 5.0, 10.0])
    """
    low, high = max(low, -300.0), min(high, 300.0)  # the room at the ends may lie beyond what a float can hold
    powers = range(math.ceil(low), math.floor(high) + 1)
    if len(powers) >= 3:
        stride = math.ceil(len(powers) / 7)
        return [float(f"1e{k}") for k in powers if k % stride == 0]
    candidates = [float(f"{m}e{k}") for k in range(math.floor(low), math.floor(high) + 1) for m in (1, 2, 5)]
    ticks = [t for t in candidates if low - 1e-9 <= math.log10(t) <= high + 1e-9]
    return ticks if len(ticks) >= 3 else round_ticks(10.0**low, 10.0**high, count=4)


def tick_labels(ticks: Sequence[float], *, log: bool = False) -> list[str]:
    """The labels of an axis, all with as many decimals as the axis needs."""
    top = max((abs(t) for t in ticks), default=0.0)
    if len(ticks) < 2:
        return [format_number(t, digits=6) for t in ticks]
    if log:
        powers = [math.log10(t) for t in ticks]
        if all(abs(p - round(p)) < 1e-9 for p in powers) and not (min(ticks) >= 1e-3 and top <= 1e4):
            return [f"10{str(round(p)).translate(_SUPERSCRIPTS)}" for p in powers]
        if ticks[1] - ticks[0] < ticks[-1] - ticks[-2] - 1e-9 * top:  # not evenly spaced
            return [format_number(t) for t in ticks]
    step = ticks[1] - ticks[0]
    order = math.floor(math.log10(step) + 1e-9)
    if top >= 1e6 or top < 1e-3:
        return [format_number(t, digits=math.floor(math.log10(top)) - order + 2) for t in ticks]
    quarter = abs(step / 10.0**order - 2.5) < 1e-6
    return [_typeset(f"{t:,.{max(0, quarter - order)}f}") for t in ticks]


def format_number(value: Any, digits: int = 4) -> str:
    """A number for readers: whole numbers of type int exactly, others to so many significant digits.

    Example:
        >>> [format_number(v) for v in (0.0061239, 1234.56, 7, -2.5e-9, float("nan"))]
        ['0.006124', '1235', '7', '−2.5×10⁻⁹', 'nan']
    """
    if isinstance(value, (int, np.integer)):
        return _typeset(f"{int(value):,}")
    number = float(value)
    if not math.isfinite(number):
        return "nan" if math.isnan(number) else _typeset(f"{number:.0f}".replace("inf", "∞"))
    mantissa, exponent = f"{number:.{max(digits, 1) - 1}e}".split("e")
    order = int(exponent)
    if number == 0 or -4 <= order < 5:
        rounded = f"{float(f'{mantissa}e{exponent}'):,.{max(0, digits - 1 - order)}f}"
        return _typeset(_stripped(rounded)) if number else "0"
    power = f"10{str(order).translate(_SUPERSCRIPTS)}"
    mantissa = _stripped(mantissa)
    return _typeset({"1": "", "-1": "-"}.get(mantissa, f"{mantissa}×")) + power


def _typeset(text: str) -> str:
    # thousands are set apart from five digits on, as usual in scientific tables
    separator = "" if sum(c.isdigit() for c in text.partition(".")[0]) < 5 else _THIN_SPACE
    return text.replace(",", separator).replace("-", "−")


def _stripped(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _usable(curve: Curve, log_y: bool) -> tuple[_Floats, _Floats]:
    """The coordinates in axis units, both NaN where a point cannot be shown."""
    x, y = np.array(curve.x, dtype=float), np.array(curve.y, dtype=float)
    with np.errstate(invalid="ignore"):
        hidden = ~((np.abs(x) < _LARGEST) & (np.abs(y) < _LARGEST) & ((y > 1 / _LARGEST) | (not log_y)))
    x[hidden] = y[hidden] = np.nan
    return x, np.log10(y) if log_y else y


def _widened(low: float, high: float, *, log: bool = False) -> _Range:
    """A range with room in it, also where all values are (nearly) the same."""
    size = max(abs(low), abs(high))
    if high - low > 1e-9 * size and high - low > 1e-290:
        return low, high
    room = 0.3 if log else 0.1 * size if size > 1e-280 else 1.0
    return low - room, high + room


def _padded(low: float, high: float, *, stop_at_zero: bool) -> _Range:
    room = 0.06 * (high - low)
    bottom, top = low - room, high + room
    if stop_at_zero and low >= 0 > bottom:
        bottom = 0.0
    return bottom, 0.0 if stop_at_zero and high <= 0 < top else top


def _place(value: Any, limits: _Range) -> Any:
    return (value - limits[0]) / (limits[1] - limits[0])


def _line(label: str, x: _Floats, y: _Floats, x_range: _Range, y_range: _Range, log_y: bool, n: int) -> Line:
    pieces = _pieces(x, y, x_range)
    across, down = _BOX * _place(x, x_range), _BOX - _BOX * _place(y, y_range)
    points = [[f"{round(across[i], 1):g} {round(down[i], 1):g}" for i in piece] for piece in pieces]
    shown = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.intp)
    return Line(
        label,
        path="".join("M" + "L".join(p) for p in points if len(p) > 1),
        dots="".join(f"M{p[0]}h0" for p in points if len(p) == 1),  # a round cap makes a dot of no length
        x=",".join(f"{v:.7g}" for v in x[shown]),
        y=",".join(f"{v:.5g}" for v in (10.0 ** y[shown] if log_y else y[shown])),
        colour=n % _COLOURS,
        dashed=n // _COLOURS % 2 == 1,
        dense=shown.size < np.isfinite(x).sum(),
    )


def _pieces(x: _Floats, y: _Floats, x_range: _Range) -> list[NDArray[np.intp]]:
    """Indices of the points to draw, split at gaps; a long series keeps the least and greatest y of each pixel column."""
    finite = np.flatnonzero(np.isfinite(x))
    if not finite.size:
        return []
    gaps = np.cumsum(np.diff(finite, prepend=finite[0]) > 1)  # points with the same count have no gap between them
    kept, runs = np.arange(finite.size), np.arange(finite.size)
    if finite.size > 2 * _COLUMNS:
        column = np.floor(_COLUMNS * _place(x[finite], x_range))
        starts = np.flatnonzero(np.diff(column)) + 1
        if starts.size > 4 * _COLUMNS:  # x goes to and fro: columns say nothing, equal shares have to do
            starts = np.linspace(0, finite.size, _COLUMNS + 1).astype(np.intp)[1:-1]
        extremes = {0, finite.size - 1}
        for run in np.split(kept, starts):
            heights = y[finite[run]]
            extremes |= {int(run[heights.argmin()]), int(run[heights.argmax()])}
        runs = np.searchsorted(starts, kept, side="right")
        kept = np.array(sorted(extremes), dtype=np.intp)
    # a gap inside one column is narrower than a pixel, and no gap to the eye
    cuts = np.flatnonzero((np.diff(gaps[kept]) > 0) & (np.diff(runs[kept]) > 0)) + 1
    return np.split(finite[kept], cuts)
