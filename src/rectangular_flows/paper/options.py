"""The options of ``rnf reproduce``, and what each experiment makes of them. Light, as :mod:`.cli` is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SETS = {"tabular": ("power", "gas", "hepmass", "miniboone"), "images": ("mnist", "fashion-mnist", "cifar10")}
_IMAGE_METHODS = ("exact", "k1", "two-step", "best")
_METHODS = {"tabular": ("exact", "k1", "k10", "two-step"), "images": _IMAGE_METHODS, "ood": _IMAGE_METHODS}
_UNASKED = {
    "images": _IMAGE_METHODS[:-1],
    "ood": _IMAGE_METHODS[:-1],
}  # methods unless others are named: not an hour each
_SEEDS = {"circle": 5, "tabular": 5, "images": 1, "ood": 1}
_ALL = "all"
_ONLY = {
    "grid": ("circle",),
    "sets": tuple(_SETS),
    "methods": tuple(_METHODS),
    "published": ("tabular",),
    "samples": ("images", "ood"),
    "published_samples": ("images",),
    "skip_fid": ("images",),
    "network": ("images",),
    "network_sha256": ("images",),
    "no_square": ("ood",),
}


def add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    """All options of all experiments."""
    parser.add_argument("what", choices=(*_SEEDS, _ALL), metavar="WHAT", help="%(choices)s")
    parser.add_argument("--grid", action="store_true", help="circle: all 36 settings of the appendix, one seed")
    text = "; ".join(f"{what}: {', '.join(names)}" for what, names in _SETS.items())
    parser.add_argument("--sets", metavar="NAME,…", help=f"(default: all) {text}")
    text = f"{', '.join(_METHODS['tabular'])}; of images and ood: {', '.join(_IMAGE_METHODS)}"
    parser.add_argument("--methods", metavar="NAME,…", help=f"(default: all but best, an hour a run) {text}")
    parser.add_argument("--published", action="store_true", help="tabular: the published settings too (days)")
    parser.add_argument("--seeds", type=int, help="how many, from 0 (default: 5; images and ood: 1)")
    parser.add_argument("--epochs", type=int, help="a limit, for a quick look")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/reproduce"), help="(default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one for each core)")
    text = "images: to compare (default: 5000, at most 2000 but for exact and best); ood: most of each set (10000)"
    parser.add_argument("-n", "--samples", type=int, help=text)
    text = "images: to compare by the published protocol, exact and best only (default: 2000; 0: none)"
    parser.add_argument("--published-samples", type=int, metavar="N", help=text)
    parser.add_argument("--skip-fid", action="store_true", help="images: no features of samples, the slow part")
    text = "ood: leave out the square flow, the contrast"
    parser.add_argument("--no-square", action="store_true", help=text)


def run_reproduce(arguments: argparse.Namespace) -> int:
    """Do the experiment that the arguments name; the exit code.

    Raises:
        ValueError: an option that the experiment has no use for, or an unknown name.
    """
    if arguments.what == _ALL:
        return _run_all(arguments)
    what, out, epochs, jobs = arguments.what, arguments.out, arguments.epochs, arguments.jobs
    for name, places in _ONLY.items():
        if getattr(arguments, name) not in (None, False) and what not in places:
            where = " and ".join("the circle" if place == "circle" else place for place in places)
            raise ValueError(f"--{name.replace('_', '-')} is for {where}; got it for {what}")
    seeds = _SEEDS[what] if arguments.seeds is None else arguments.seeds
    sets = _chosen(arguments.sets, _SETS.get(what, ()), "data set")
    known = _METHODS.get(what, ())
    methods = _chosen(arguments.methods, known, "method", _UNASKED.get(what, known))
    if what == "tabular":
        from .tabular import KEYS, tabular_command

        names = [KEYS[method] for method in methods]
        return tabular_command(out / "tabular", sets, names, seeds, epochs, jobs, arguments.published)
    options: dict[str, Any] = {}
    if what in ("images", "ood"):
        from .image_runs import KEYS as IMAGE_KEYS

        names = [IMAGE_KEYS[method] for method in methods]
        if what == "ood":
            from .ood_reproduction import ood_reproduction_command

            options = {"square": not arguments.no_square, **_given(arguments, samples="count")}
            return ood_reproduction_command(out, names, seeds, epochs, jobs, **options)
        from .images import images_command

        options = {name: getattr(arguments, name) for name in ("skip_fid", "network", "network_sha256")}
        options |= _given(arguments, samples="samples", published_samples="published_samples")
        return images_command(out / "images", sets, names, seeds, epochs, jobs, **options)
    from .circle import grid_command, reproduce_command

    if arguments.grid:
        return grid_command(out / "circle-grid", epochs, jobs)
    return reproduce_command(out / "circle", seeds, epochs, jobs)


def _run_all(arguments: argparse.Namespace) -> int:
    """Every experiment with its defaults, one after the other; one that cannot be done is told of at the end."""
    given = [f"--{name.replace('_', '-')}" for name in _ONLY if getattr(arguments, name) not in (None, False)]
    if given:
        raise ValueError(f"{', '.join(given)}: not for all experiments at once. Name one: {', '.join(_SEEDS)}")
    from ..data.tables import DataError

    missing = []
    for what in _SEEDS:
        for grid in (False, True) if what == "circle" else (False,):
            arguments.what, arguments.grid = what, grid
            try:
                run_reproduce(arguments)
            except DataError as error:
                missing.append(f"{what}: {error}")
    if missing:
        raise ValueError("; ".join(missing))
    return 0


def _given(arguments: argparse.Namespace, **names: str) -> dict[str, Any]:
    """Those options that were given, under the names that a function has for them."""
    return {to: getattr(arguments, name) for name, to in names.items() if getattr(arguments, name) is not None}


def _chosen(text: str | None, known: Sequence[str], what: str, unasked: Sequence[str] | None = None) -> list[str]:
    """The names in a list with commas, each known, in the order in which they are known; without a list those unasked."""
    from ..spelling import nearest

    words = list(known if unasked is None else unasked) if text is None else text.split(",")
    for word in words:
        if word not in known:
            raise ValueError(f"no {what} {word!r}.{nearest(word, known)} There are: {', '.join(known)}")
    return [name for name in known if name in words]


__all__ = ["add_reproduce_arguments", "run_reproduce"]
