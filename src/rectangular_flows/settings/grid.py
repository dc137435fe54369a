"""Settings that vary from run to run: ``seed=0..4`` and ``latent_dim=2,3,5`` are fifteen runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..spelling import nearest
from .fit import FitSettings, settings_table

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_MOST = 10_000  # runs


@dataclass(frozen=True)
class Point:
    """One run of a grid: the settings that vary, by name, and all of them."""

    values: dict[str, Any]
    settings: FitSettings

    @property
    def title(self) -> str:
        """What varies, in words."""
        return ", ".join(f"{name} {_text(value)}" for name, value in self.values.items())

    @property
    def folder(self) -> str:
        """The same as the name of a folder."""
        return re.sub(r"[^\w.=,+-]", "_", ",".join(f"{name}={_text(value)}" for name, value in self.values.items()))


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """The name of a setting and its values, from ``seed=0..4``, ``latent_dim=2,3,5`` or ``hidden=64,64;128,128``.

    Values are separated by commas, or by semicolons where there is one; ``a..b`` are the whole numbers from a to b.

    Raises:
        ValueError: there is no such setting, or no value, or one that is impossible.

    Example:
        >>> parse_axis("seed=0..2,7")
        ('seed', [0, 1, 2, 7])
    """
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not values.strip():
        raise ValueError(f"expected a setting and its values, such as seed=0..4; got --over {text!r}")
    table = settings_table()
    if name not in table.settings():
        raise ValueError(f"unknown setting {name!r} in --over {text}.{nearest(name, table.settings())}")
    parts = spread_out(values.split(";" if ";" in values else ","))
    found = [table.convert(name, part) for part in parts]
    if any(found.count(value) > 1 for value in found):
        raise ValueError(f"expected different values of {name}; got {values}")
    return name, found


def spread_out(parts: Sequence[str]) -> list[str]:
    """The parts, and in place of each ``a..b`` the whole numbers from a to b.

    Raises:
        ValueError: a range is empty, or has too many numbers.

    Example:
        >>> spread_out(["0..2", "7"])
        ['0', '1', '2', '7']
    """
    found: list[str] = []
    for part in map(str.strip, parts):
        span = _RANGE.fullmatch(part)
        numbers = range(int(span[1]), int(span[2]) + 1) if span else None
        if numbers is not None and not 0 < len(numbers) <= _MOST:
            raise ValueError(f"expected a range from a number to one no less, such as 0..4; got {part}")
        found += [part] if numbers is None else map(str, numbers)
    return found


def grid(axes: Sequence[tuple[str, Sequence[Any]]], given: Mapping[str, Any], base: Mapping[str, Any]) -> list[Point]:
    """Every combination of the values, the last axis changing fastest; all are checked before any is run.

    Args:
        axes: names and values.
        given: settings of all runs, which must apply.
        base: settings under those, dropped where they do not.

    Raises:
        ValueError: an axis is given twice, or a combination is impossible.
    """
    names = [name for name, _ in axes]
    if len({*names}) < len(names):
        raise ValueError(f"expected each setting once; got --over {', '.join(names)}")
    points = []
    for values in itertools.islice(itertools.product(*(values for _, values in axes)), _MOST + 1):
        chosen = dict(zip(names, values, strict=True))
        points.append(Point(chosen, FitSettings.from_flat({**given, **chosen}, base)))
    if len(points) > _MOST:
        raise ValueError(f"expected at most {_MOST:,} runs; got more")
    if len({point.folder for point in points}) < len(points):
        raise ValueError("expected values that give folders of different names; rename the files among them")
    return points


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
