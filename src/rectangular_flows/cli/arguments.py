"""Arguments that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..spelling import shortened


def whole(text: str) -> int:
    """A whole number that torch can count to."""
    value = int(text)
    if abs(value) > _LARGEST:
        raise argparse.ArgumentTypeError(f"expected a whole number below 2⁶³; got {shortened(text, 40)}")
    return value


whole.__name__ = "int"  # what argparse calls it in its messages
_LARGEST = 2**63 - 1


def seed(text: str) -> int:
    """A whole number from 0."""
    value = whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a seed from 0 to 2⁶³ − 1; got {value}")
    return value


seed.__name__ = "int"


def add_run(parser: argparse.ArgumentParser) -> None:
    """The folder of a run."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")


def add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    """The seed of whatever is random."""
    parser.add_argument("--seed", type=seed, default=0, help=f"seed of {what} (default: %(default)s)")


def add_drop_invalid(parser: argparse.ArgumentParser) -> None:
    """Whether incomplete rows are left out."""
    parser.add_argument("--drop-invalid", action="store_true", help="leave out rows with missing or infinite values")


def add_network(parser: argparse.ArgumentParser) -> None:
    """The network whose features FID and KID compare."""
    text = "TorchScript file for the features of images (default: that of FID, in the data folder)"
    parser.add_argument("--network", type=Path, metavar="FILE", help=text)
    parser.add_argument("--network-sha256", metavar="HEX", help="SHA-256 that this file must have")
