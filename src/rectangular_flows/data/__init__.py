"""Where data come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .benchmarks import Splits, load_benchmark
    from .download import data_root, fetch
    from .images import ImageSplits, load_images
    from .pixels import ClippedPixelsWarning, ImageRows, dequantise, to_bytes, to_unit
    from .registry import DATASETS
    from .synthetic import von_mises_circle, von_mises_log_density
    from .tables import DataError, Table, read_table, write_table

_HOMES = {
    "ClippedPixelsWarning": ".pixels",
    "DATASETS": ".registry",
    "DataError": ".tables",
    "ImageRows": ".pixels",
    "ImageSplits": ".images",
    "Splits": ".benchmarks",
    "Table": ".tables",
    "data_root": ".download",
    "dequantise": ".pixels",
    "fetch": ".download",
    "load_benchmark": ".benchmarks",
    "load_images": ".images",
    "read_table": ".tables",
    "to_bytes": ".pixels",
    "to_unit": ".pixels",
    "von_mises_circle": ".synthetic",
    "von_mises_log_density": ".synthetic",
    "write_table": ".tables",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)

__all__ = [
    "DATASETS",
    "ClippedPixelsWarning",
    "DataError",
    "ImageRows",
    "ImageSplits",
    "Splits",
    "Table",
    "data_root",
    "dequantise",
    "fetch",
    "load_benchmark",
    "load_images",
    "read_table",
    "to_bytes",
    "to_unit",
    "von_mises_circle",
    "von_mises_log_density",
    "write_table",
]
