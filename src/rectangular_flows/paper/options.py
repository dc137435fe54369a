"""The options of ``rnf reproduce``, and what each experiment may be asked for. Parsing them imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..settings.grid import spread_out
from ..spelling import nearest


@dataclass(frozen=True)
class Request:
    """What is asked of an experiment.

    Attributes:
        out: folder of all experiments.
        sets: data sets, by name.
        methods: ways to train, by their names on the command line.
        seeds: of the runs.
        epochs: a limit for each run; None for none.
        jobs: runs at a time; None for one on each core.
        more: options of this experiment alone, where they were given.
    """

    out: Path
    sets: tuple[str, ...]
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    epochs: int | None = None
    jobs: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What an experiment may be asked for: its defaults, and which of :data:`_OWN` it takes."""

    seeds: int
    sets: tuple[str, ...]
    methods: tuple[str, ...] = ()
    if_asked: tuple[str, ...] = ()
    """Methods that are used only if they are named."""
    own: tuple[str, ...] = ()


_IMAGES = ("exact", "k1", "two-step")
_NETWORK = ("network", "network_sha256")
CIRCLE_PRESETS = ("circle", "circle-baseline", "circle-ml", "circle-two-step", "circle-mflow")
EXPERIMENTS = {
    "circle": Options(5, ("circle",), CIRCLE_PRESETS, own=("methods", "grid")),
    "tabular": Options(
        5,
        ("power", "gas", "hepmass", "miniboone"),
        ("exact", "k1", "k10", "two-step"),
        ("auto",),
        own=("sets", "methods", "published"),
    ),
    "images": Options(
        1,
        ("mnist", "fashion-mnist", "cifar10"),
        _IMAGES,
        ("best",),
        ("sets", "methods", "samples", "published_samples", "skip_fid", *_NETWORK),
    ),
    "ood": Options(1, ("mnist", "fashion-mnist"), _IMAGES, ("best",), ("methods", "samples", "no_square")),
}
_OWN = tuple(dict.fromkeys(name for options in EXPERIMENTS.values() for name in options.own))


def run_reproduce(arguments: argparse.Namespace) -> int:
    """Run the experiment that the arguments name; the exit code.

    Raises:
        ValueError: an option that does not apply to the experiment, or an unknown name.
        DataError: the experiment cannot do without data that are not at hand.
    """
    given = {name: getattr(arguments, name, None) for name in _OWN}
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    if arguments.what == "all":
        if given:
            flags = ", ".join(map(_flag, given))
            raise ValueError(f"{flags}: not for all experiments at once. Name one: {', '.join(EXPERIMENTS)}")
        return _run_all(arguments)
    options = EXPERIMENTS[arguments.what]
    for name in given:
        if name not in options.own:
            takers = " and ".join(what for what, o in EXPERIMENTS.items() if name in o.own)
            raise ValueError(f"{_flag(name)} is for {takers}; got it for {arguments.what}")
    if "grid" in given and "methods" in given:
        raise ValueError("--grid has settings of its own: leave out --methods")
    return _run(arguments.what, _request(arguments, options, given))


def _run(what: str, request: Request) -> int:
    from .circle import Circle, Grid
    from .experiment import Experiment
    from .images import Images
    from .ood import OutOfDistribution
    from .tabular import Tabular

    circle = Grid if "grid" in request.more else Circle
    kinds: dict[str, type[Experiment[Any]]] = {
        "circle": circle,
        "tabular": Tabular,
        "images": Images,
        "ood": OutOfDistribution,
    }
    return kinds[what](request).run()


def _run_all(arguments: argparse.Namespace) -> int:
    """Every experiment with its defaults, one after the other; those that lack data are named at the end."""
    from ..data.tables import DataError

    missing, code = [], 0
    for what, options in EXPERIMENTS.items():
        request = _request(arguments, options, {})
        grid = [replace(request, more={"grid": True})] if "grid" in options.own else []
        for each in (request, *grid):
            try:
                code = max(code, _run(what, each))
            except DataError as error:
                missing.append(f"{what}: {error}")
    if missing:
        raise ValueError("; ".join(missing))
    return code


def _request(arguments: argparse.Namespace, options: Options, given: Mapping[str, Any]) -> Request:
    seeds = tuple(range(options.seeds)) if arguments.seeds is None else read_seeds(arguments.seeds)
    sets = _chosen(given.get("sets"), options.sets, options.sets, "data set")
    methods = _chosen(given.get("methods"), (*options.methods, *options.if_asked), options.methods, "method")
    more = {name: value for name, value in given.items() if name not in ("sets", "methods")}
    return Request(arguments.out, sets, methods, seeds, arguments.epochs, arguments.jobs, more)


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds: so many from 0 on, or a list of them.

    Raises:
        ValueError: there is none, one is repeated, or one is no whole number from 0 on.

    Example:
        >>> read_seeds("3"), read_seeds("0..2,10,12")
        ((0, 1, 2), (0, 1, 2, 10, 12))
    """
    words = spread_out(text.split(","))
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"expected --seeds as a number of seeds, or as a list such as 0..4,10..14; got {text!r}")
    numbers = tuple(map(int, words))
    found = tuple(range(numbers[0])) if text.strip().isdigit() else numbers
    if not found:
        raise ValueError(f"expected at least one seed; got {text}")
    if len({*found}) < len(found):
        raise ValueError(f"expected different seeds; got {text}")
    return found


def _chosen(text: str | None, known: tuple[str, ...], default: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The names in a list with commas, each known, in the order in which they are known; the default without a list."""
    if text is None:
        return default
    words = text.split(",")
    for word in words:
        if word not in known:
            raise ValueError(f"expected a {what} among {', '.join(known)}; got {word!r}.{nearest(word, known)}")
    return tuple(name for name in known if name in words)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
