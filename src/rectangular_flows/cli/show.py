"""``rnf show``: what a run is, and the verdict on it."""

from __future__ import annotations

import argparse

from .arguments import add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_run(parser)
    parser.add_argument("--again", action="store_true", help="judge the run again, and replace the kept verdict")


def run(arguments: argparse.Namespace) -> int:
    """Describe, judge, print."""
    from ..evaluation.run_verdict import kept_verdict, verdict_of
    from ..runs.described import describe_run
    from ..runs.display import say
    from ..runs.saved import SavedRun

    saved = SavedRun(arguments.folder)
    say(*describe_run(saved), "")
    if saved.trained:
        say(str(verdict_of(saved, again=arguments.again)))
    else:
        kept = kept_verdict(saved)
        say(str(kept) if kept else "No verdict was saved with it: est.summary(X), with rows of your own, gives one.")
    return 0
