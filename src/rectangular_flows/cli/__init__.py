"""The command line, ``rnf``: one table of commands, each in a module of its own that is imported when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import warnings
from collections.abc import Collection, Sequence
from typing import NamedTuple, NoReturn

from .._version import __version__
from ..spelling import nearest, one_line


class Command(NamedTuple):
    """What a command does, in a line, and its module.

    The module has ``add_arguments(parser)`` and ``run(arguments) -> int``, which returns the exit code. It should import
    torch inside ``run`` only, so that ``rnf COMMAND --help`` is quick.
    """

    help: str
    module: str


COMMANDS: dict[str, Command] = {
    "demo": Command("train both methods on the von Mises circle, draw the figure, write the report", ".demo"),
    "fit": Command("train on your own table or images, or on a known data set", ".fit"),
    "sweep": Command("train a grid of settings and seeds side by side, and compare", ".sweep"),
    "sample": Command("draw samples from a trained model", ".sample"),
    "score": Command("log-density, distance from the manifold and outlier score of every row", ".score"),
    "show": Command("what a run is, and whether it is any good", ".show"),
    "evaluate": Command("how good a model is, on its test rows", ".evaluate"),
    "ood": Command("how well a model tells other data from its own, by each of its scores", ".ood"),
    "plot": Command("pictures of a run, as PNG files in RUN/figures", ".plot"),
    "report": Command("one self-contained HTML page about a run", ".report"),
    "reproduce": Command("the paper's experiments: published numbers beside ours", ".reproduce"),
    "dimension": Command("estimate the dimension of the manifold that data lie on", ".dimension"),
    "completion": Command("print a script that completes commands in your shell", ".completion"),
    "data": Command("list and download the data sets that rnf knows", ".data"),
    "bench": Command("time and memory against the algorithm as published", ".bench"),
}
"""By name, in the order of ``rnf --help``. To add a command, add an entry."""


BUG = 70
"""The exit code of an error that nobody foresaw."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    The exit code is 0, 2 for a mistake in what was asked, 130 after Ctrl-C, 1 for a failed run, 70 for a bug of ours.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = _note
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:  # of training, with its state saved, or a plain one
        return _complain(str(stop) or "stopped", int(getattr(stop, "exit_code", 130)), all_alike=True)
    except (ValueError, OSError) as error:
        return _complain(_text(error), 2)
    except Exception as error:
        own = type(error).__module__.startswith(__name__.partition(".")[0])
        if own and isinstance(error, ArithmeticError):  # training or scoring broke down, and says what to try
            return _complain(str(error), 1, all_alike=True)
        if own and hasattr(error, "exit_code"):  # of several processes another one failed, and has said why if it could
            code, said = int(error.exit_code), bool(getattr(error, "known", False))
            return code if said else _complain(str(error), code, all_alike=True)
        from .bug import lack_of_memory, report_bug

        known = lack_of_memory(error)
        return _complain(known, 2) if known else _complain(report_bug(error, arguments), BUG)


def _note(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"note: {message}")


def _complain(text: str, code: int = 0, all_alike: bool = False) -> int:
    """One line on standard error; the code. Of several processes the first speaks for all where these say the same."""
    rank = os.environ.get("RANK", "0") if "TORCHELASTIC_RUN_ID" in os.environ else "0"
    training = sys.modules.get(f"{__name__.partition('.')[0]}.training.distributed")
    alone = training is not None and training.joined()  # before they join, processes do the same
    if rank == "0" or (alone and not all_alike):
        print(f"rnf: {'' if rank == '0' else f'process {rank}: '}{one_line(text)}", file=sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    parser = command_line([word for word in arguments if not word.startswith("-")][:1])
    parsed, rest = parser.parse_known_args(arguments)
    if rest:
        raise ValueError(_unknown(rest, parsed.parser))
    if parsed.command is None:
        parser.print_help()
        return 0
    _keep_freed_memory()
    return int(parsed.run(parsed))


def command_line(names: Collection[str]) -> argparse.ArgumentParser:
    """The parser of ``rnf``, with the arguments of the commands named; of the others it knows no more than the table."""
    parser = _Parser(
        prog="rnf",
        description="Learn a low-dimensional manifold in data, and the density on it, by maximum likelihood.",
        epilog="See 'rnf COMMAND --help' for the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"rnf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (text, module) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name in names:
            command = importlib.import_module(module, __name__)
            command.add_arguments(sub)
            sub.set_defaults(run=command.run, parser=sub)
    return parser


class _Parser(argparse.ArgumentParser):
    """Complains in one line, with the nearest of the words it knows."""

    def error(self, message: str) -> NoReturn:
        choice = re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            what, word, known = choice[1], choice[2], choice[3].replace("'", "").split(", ")
            message = f"{what}: expected one of {', '.join(known)}; got {word}.{nearest(word, known)}"
        raise ValueError(f"{message} (see {self.prog} --help)")


def _unknown(words: list[str], parser: argparse.ArgumentParser) -> str:
    """The message about words that a command has no use for."""
    word = next((word for word in words if word.startswith("-")), words[0])
    if not word.startswith("-"):
        return f"expected one argument less: {word!r} is one too many. Options begin with --: see {parser.prog} --help"
    known = [flag for action in parser._actions for flag in action.option_strings]
    return f"unknown option {word}.{nearest(word.partition('=')[0], known)} See {parser.prog} --help"


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _keep_freed_memory() -> None:
    """Ask glibc not to hand freed memory back after every training step, only to fault it in again.

    Elsewhere than on glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    trim_threshold, mmap_threshold = -1, -3
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_threshold, 2**25)
