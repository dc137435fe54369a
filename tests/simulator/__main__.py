"""``python -m tests.simulator 17`` plays sequence 17 and tells each step; ``0-300`` plays many and tells the failures."""

import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch

from .sequence import Sequence


def main(words):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    first, _, last = words[0].partition("-")
    seeds, failed = range(int(first), int(last or first) + 1), []
    for seed in seeds:
        lines = []
        try:
            Sequence(seed, Path(tempfile.mkdtemp()), lines.append if len(seeds) > 1 else print).play()
        except Exception:
            failed.append(seed)
            print(f"--- sequence {seed}", *lines, traceback.format_exc(), sep="\n", flush=True)
    print(f"{len(seeds)} sequences, {len(failed)} failed{': ' if failed else ''}{', '.join(map(str, failed))}")
    return bool(failed)


sys.exit(main(sys.argv[1:]))
