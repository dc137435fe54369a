"""``rnf reproduce``: the paper's experiments."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..paper.options import EXPERIMENTS, run_reproduce
from .arguments import add_network, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of all experiments; those that do not apply to the one named are refused."""
    listed = {name: ", ".join((*o.methods, *o.if_asked)) for name, o in EXPERIMENTS.items()}
    sets = "; ".join(f"{name}: {', '.join(o.sets)}" for name, o in EXPERIMENTS.items() if "sets" in o.own)
    parser.add_argument("what", choices=(*EXPERIMENTS, "all"), metavar="WHAT", help="%(choices)s")
    parser.add_argument("--grid", action="store_true", help="circle: all 36 settings of the appendix, one seed")
    parser.add_argument("--sets", metavar="NAME,…", help=f"data sets (default: all); {sets}")
    text = f"methods (default: all but best, which takes an hour a run, and auto); tabular: {listed['tabular']}"
    text += f"; circle: {listed['circle']}"
    parser.add_argument("--methods", metavar="NAME,…", help=f"{text}; images and ood: {listed['images']}")
    parser.add_argument("--published", action="store_true", help="tabular: also run the published settings (days)")
    text = "number of seeds, from 0 on, or a list such as 0..4,10..14 or 7..7 (default: 5; images and ood: 1)"
    parser.add_argument("--seeds", help=text)
    parser.add_argument("--epochs", type=whole, help="train for at most EPOCHS, for a quick look")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/reproduce"), help="folder (default: %(default)s)")
    parser.add_argument("--jobs", type=whole, help="number of runs at a time (default: one for each core)")
    text = "images: samples to compare (default: 5000; at most 2000 of k1 and two-step); ood: images of each set"
    parser.add_argument("-n", "--samples", type=whole, help=f"{text} (default: 10000)")
    text = "images: samples to compare by the published protocol, of exact and best only (default: 2000; 0: none)"
    parser.add_argument("--published-samples", type=whole, metavar="N", help=text)
    parser.add_argument("--skip-fid", action="store_true", help="images: leave out FID and what else is slow")
    parser.add_argument("--no-square", action="store_true", help="ood: leave out the square flow, for contrast")
    add_network(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train what is missing, judge, write the report."""
    return run_reproduce(arguments)
