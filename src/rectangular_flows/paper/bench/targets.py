"""What the groups are to reach: bounds for a number of a method, case by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Goal(NamedTuple):
    """Bounds for one field of a method's rows."""

    text: str
    group: str
    method: str
    field: str
    bounds: Mapping[str, float]
    """For each case."""
    at_least: bool = False

    def outcomes(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float, float, bool]]:
        """(case, bound, measured, reached) of each case that was measured."""
        for row in rows:
            bound, value = self.bounds.get(row.get("case", "")), row.get(self.field)
            if row.get("method") == self.method and bound is not None and value is not None:
                yield row["case"], bound, value, value >= bound if self.at_least else value <= bound


_TABLES = ("power", "gas", "hepmass", "miniboone")
_STEP = dict.fromkeys(_TABLES[:3], 1.2) | {"miniboone": 1.5, "image-fast": 1.5, "mnist": 2.0, "large": 2.0}
GOALS = (
    Goal("`auto` over a step without the likelihood", "step", "auto", "over_reconstruction", _STEP),
    Goal(
        "exact as published over `auto`",
        "step",
        "auto",
        "published_exact_over_this",
        {"power": 3.0, "hepmass": 7.0, "miniboone": 12.0, "mnist": 10.0},
        at_least=True,
    ),
    Goal(
        "variance of the gradient over the exact one's",
        "step",
        "auto",
        "variance_ratio",
        dict.fromkeys((*_TABLES, "mnist", "image-fast", "large"), 1.05),
    ),
    Goal(
        "memory of an exact step over that as published",
        "memory",
        "exact",
        "of_published",
        dict.fromkeys(_TABLES, 0.15),
    ),
    Goal(
        "time of that step over one of the whole batch at once",
        "memory",
        "exact",
        "time_over_whole",
        dict.fromkeys(_TABLES, 1.1),
    ),
)
