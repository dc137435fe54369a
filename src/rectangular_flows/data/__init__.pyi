from ._files import DataError, MissingFileError
from .benchmarks import load_benchmark
from .datasets import DATASETS, Dataset, RemoteFile, Splits, find_dataset, register_dataset
from .download import data_root, fetch
from .images import ImageSplits, load_images
from .pixels import ClippedPixelsWarning, ImageRows, dequantise, to_bytes
from .synthetic import von_mises_circle, von_mises_log_density
from .tables import Table, read_table, write_table

__all__ = [
    "DATASETS",
    "ClippedPixelsWarning",
    "DataError",
    "Dataset",
    "ImageRows",
    "ImageSplits",
    "MissingFileError",
    "RemoteFile",
    "Splits",
    "Table",
    "data_root",
    "dequantise",
    "fetch",
    "find_dataset",
    "load_benchmark",
    "load_images",
    "read_table",
    "register_dataset",
    "to_bytes",
    "von_mises_circle",
    "von_mises_log_density",
    "write_table",
]
