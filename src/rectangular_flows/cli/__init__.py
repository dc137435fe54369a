"""The command line, ``rnf``. Nothing heavy is imported before a command needs it: ``rnf --help`` loads no torch."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .._version import __version__
from ..paper.options import add_reproduce_arguments, run_reproduce

_CASES = ("circle", "power", "gas", "hepmass", "miniboone", "mnist", "cifar10")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 2 for a mistake in what was asked, 130 after Ctrl-C, 1 for a failed run."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = lambda message, *_, **__: print(f"rnf: note: {message}", file=sys.stderr)
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:  # of training, with its state saved, or a plain one
        print(f"rnf: {stop}" if str(stop) else "rnf: stopped", file=sys.stderr)
        return int(getattr(stop, "exit_code", 130))
    except (ValueError, OSError) as error:
        print(f"rnf: {_text(error)}", file=sys.stderr)
        return 2
    except ArithmeticError as error:  # training or scoring broke down, and says what to try
        print(f"rnf: {error}", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["fit"]:
        from .options import parse_fit

        request = parse_fit(arguments[1:])
        _keep_freed_memory()
        from .fit import fit_command

        return fit_command(request)
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        parser.print_help()
        return 0
    _keep_freed_memory()
    return int(parsed.run(parsed))


class _Parser(argparse.ArgumentParser):
    """Complains in one line, with the nearest command."""

    def error(self, message: str) -> NoReturn:
        if "invalid choice: " in message:
            from ..spelling import nearest

            word = message.split("invalid choice: ")[1].split("'")[1]
            known = message.split("choose from ")[-1].rstrip(")").replace("'", "").split(", ")
            message = f"{word!r} is not known.{nearest(word, known)} There are: {', '.join(known)}"
        raise ValueError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rnf",
        description="Learn a low-dimensional manifold in data, and the density on it, by maximum likelihood.",
        epilog="'rnf COMMAND --help' tells more.",
    )
    parser.add_argument("--version", action="version", version=f"rnf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        sub.set_defaults(run=run)
        return sub

    demo = command("demo", _demo, "the von Mises circle: train both methods, draw the figure, write the report")
    demo.add_argument("-o", "--out", type=Path, default=Path("runs/demo"), help="folder (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of data, weights and batches (default: %(default)s)")
    demo.add_argument("--epochs", type=int, help="fewer than the default, for a quick look")

    commands.add_parser("fit", help="train on your own table or images, or on a known data set", add_help=False)

    sample = command("sample", _sample, "draw samples from a trained model")
    _run_argument(sample)
    sample.add_argument("-n", "--count", type=int, default=1000, help="how many (default: %(default)s)")
    formats = "CSV, TSV, NPY, NPZ or Parquet (default: samples.csv); images: NPY, NPZ or one PNG (default: samples.npy)"
    sample.add_argument("-o", "--output", type=Path, help=formats)
    sample.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")

    score = command("score", _score, "log-density, distance from the manifold and outlier score of every row")
    _run_argument(score)
    text = "file with the columns the model was trained on; images: a data set, a folder or an array, of which the test"
    score.add_argument("data", metavar="DATA", help=f"{text} images are scored where some are set apart, or else all")
    _output_argument(score, "scores.csv")
    score.add_argument("--coordinates", action="store_true", help="also the coordinates z on the manifold")
    score.add_argument("--drop-invalid", action="store_true", help="leave out rows with missing or infinite values")

    evaluate = command("evaluate", _evaluate, "how good a model is, on its test rows")
    _run_argument(evaluate)
    text = "samples to compare (default: 10000; images: 5000)"
    evaluate.add_argument("-n", "--samples", type=int, help=text)
    evaluate.add_argument("--rows", type=int, default=50_000, help="most test rows (default: %(default)s)")
    evaluate.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")
    evaluate.add_argument("--skip-fid", action="store_true", help="images: no features of samples, the slow part")
    _network_arguments(evaluate)

    ood = command("ood", _ood, "how well a model tells other data from its own, by each of its scores")
    _run_argument(ood)
    ood.add_argument(
        "--against", metavar="DATA", required=True, help="a file, a folder of pictures, or the name of a known data set"
    )
    ood.add_argument("-n", "--count", type=int, default=10_000, help="most rows of each set (default: %(default)s)")
    ood.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="(default: RUN/ood-NAME)")
    ood.add_argument("--seed", type=int, default=0, help="of the choice of rows (default: %(default)s)")
    ood.add_argument("--drop-invalid", action="store_true", help="leave out rows with missing or infinite values")

    plot = command("plot", _plot, "pictures of a run, as PNG files in RUN/figures")
    _run_argument(plot)

    report = command("report", _report, "one self-contained HTML page about a run")
    _run_argument(report)
    report.add_argument("-o", "--output", type=Path, help="file (default: RUN/report.html)")

    reproduce = command("reproduce", run_reproduce, "the paper's experiments: published, ours, seeds")
    add_reproduce_arguments(reproduce)
    _network_arguments(reproduce)

    dimension = command("dimension", _dimension, "estimates of the dimension of the manifold that data lie on")
    dimension.add_argument("data", metavar="DATA", help="a file, a folder of pictures, a known data set")
    dimension.add_argument("--columns", metavar="NAME,…", help="only these columns")
    dimension.add_argument("--exclude", metavar="NAME,…", help="all columns but these")
    dimension.add_argument("--drop-invalid", action="store_true", help="leave out rows with missing or infinite values")
    dimension.add_argument("--seed", type=int, default=0, help="of the rows looked at (default: %(default)s)")
    dimension.add_argument(
        "-o", "--output", type=Path, default=Path("dimension.png"), help="picture (default: %(default)s)"
    )

    completion = command("completion", _completion, "a script that completes commands in your shell")
    completion.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="%(choices)s")

    data = commands.add_parser("data", help="the data sets that rnf knows, and getting them")
    which = data.add_subparsers(dest="what", metavar="WHAT", required=True)
    which.add_parser("list", help="what there is").set_defaults(run=_data_list)
    get = which.add_parser("get", help="download a data set")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(run=_data_get)

    bench = commands.add_parser("bench", help="time and memory against the algorithm as published")
    what = bench.add_subparsers(dest="what", metavar="WHAT", required=True)
    volume = what.add_parser("volume", help="one training step, exact and stochastic log-volume")
    volume.add_argument(
        "--cases", nargs="+", choices=_CASES, default=list(_CASES[:5]), metavar="CASE", help="%(choices)s"
    )
    volume.add_argument("--repeats", type=int, default=5, help="rounds, both sides interleaved (default: %(default)s)")
    volume.add_argument("--no-memory", action="store_true", help="skip the memory measurement in child processes")
    volume.add_argument("-o", "--output", type=Path, help="also write the figures to this JSON file")
    volume.set_defaults(run=_bench_volume)
    parser.set_defaults(commands=commands.choices)
    return parser


def _run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")


def _output_argument(parser: argparse.ArgumentParser, default: str) -> None:
    formats = "CSV, TSV, NPY, NPZ or Parquet"
    parser.add_argument("-o", "--output", type=Path, default=Path(default), help=f"{formats} (default: %(default)s)")


def _network_arguments(parser: argparse.ArgumentParser) -> None:
    text = "TorchScript file for the features of images (default: that of FID, in the data folder)"
    parser.add_argument("--network", type=Path, metavar="FILE", help=text)
    parser.add_argument("--network-sha256", metavar="HEX", help="what the file must have, if it is your own")


def _demo(arguments: argparse.Namespace) -> int:
    from ..paper.circle import demo_command

    return demo_command(arguments.out, arguments.seed, arguments.epochs)


def _sample(arguments: argparse.Namespace) -> int:
    from .score import sample_command

    return sample_command(arguments.folder, arguments.count, arguments.output, arguments.seed)


def _score(arguments: argparse.Namespace) -> int:
    from .score import score_command

    options: dict[str, Any] = {"drop_invalid": arguments.drop_invalid, "coordinates": arguments.coordinates}
    return score_command(arguments.folder, arguments.data, arguments.output, **options)


def _evaluate(arguments: argparse.Namespace) -> int:
    from .evaluate import evaluate_command

    options = {name: getattr(arguments, name) for name in ("skip_fid", "network", "network_sha256")}
    return evaluate_command(arguments.folder, arguments.samples, arguments.seed, arguments.rows, **options)


def _ood(arguments: argparse.Namespace) -> int:
    from .ood import ood_command

    options = (arguments.count, arguments.output, arguments.seed, arguments.drop_invalid)
    return ood_command(arguments.folder, arguments.against, *options)


def _plot(arguments: argparse.Namespace) -> int:
    from .report import plot_command

    return plot_command(arguments.folder)


def _report(arguments: argparse.Namespace) -> int:
    from .report import report_command

    return report_command(arguments.folder, arguments.output)


def _dimension(arguments: argparse.Namespace) -> int:
    from ..settings import DataSettings
    from .dimension import dimension_command

    names = {name: getattr(arguments, name) for name in ("columns", "exclude")}
    chosen: dict[str, Any] = {name: tuple(text.split(",")) for name, text in names.items() if text}
    settings = DataSettings(arguments.data, drop_invalid=arguments.drop_invalid, **chosen)
    return dimension_command(settings, arguments.output, arguments.seed)


def _completion(arguments: argparse.Namespace) -> int:
    from .completion import script

    print(script(arguments.shell, arguments.commands), end="")
    return 0


def _data_list(_: argparse.Namespace) -> int:
    from .data import list_command

    return list_command()


def _data_get(arguments: argparse.Namespace) -> int:
    from .data import get_command

    return get_command(arguments.name)


def _bench_volume(arguments: argparse.Namespace) -> int:
    from ..paper.bench import bench_volume

    bench_volume(arguments.cases, arguments.repeats, memory=not arguments.no_memory, output=arguments.output)
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
