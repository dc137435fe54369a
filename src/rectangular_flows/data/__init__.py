"""Where data come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .benchmarks import Splits, load_benchmark
    from .download import data_root, fetch
    from .registry import DATASETS
    from .synthetic import von_mises_circle, von_mises_log_density
    from .tables import DataError, Table, read_table, write_table

_HOMES = {
    "DATASETS": ".registry",
    "DataError": ".tables",
    "Splits": ".benchmarks",
    "Table": ".tables",
    "data_root": ".download",
    "fetch": ".download",
    "load_benchmark": ".benchmarks",
    "read_table": ".tables",
    "von_mises_circle": ".synthetic",
    "von_mises_log_density": ".synthetic",
    "write_table": ".tables",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)

__all__ = [
    "DATASETS",
    "DataError",
    "Splits",
    "Table",
    "data_root",
    "fetch",
    "load_benchmark",
    "read_table",
    "von_mises_circle",
    "von_mises_log_density",
    "write_table",
]
