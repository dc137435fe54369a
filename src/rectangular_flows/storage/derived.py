"""What was made from a model: evaluations, figures, pages. It is out of date when the model changes, and removed then.

Only files that we wrote are removed. Their names are noted in the run folder before they are written. Numbers that are read
back are removed in any case, since they would be taken for those of the new model.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

NOTED = ".rnf-derived"
MANIFEST = "manifest.json"
_READ = ("failure.txt", "evaluation.json", "verdict.json")
_NAMES = (*_READ, "report.html", "circle.json", "tabular.json")
_DERIVED = re.compile(rf"{'|'.join(map(re.escape, _NAMES))}|figures/[\w-]+\.png|ood-[\w.-]+/ood\.(?:json|png)")
_FIGURES = ("circle", "earth", "pairs", "manifold", "samples", "reconstructions", "lines", "plane")  # of version 0.1


def note_derived(path: Path) -> None:
    """Note a file that is about to be written, if it is one that is made from the model of a run."""
    for folder in (path.parent, path.parent.parent):
        name = path.relative_to(folder).as_posix()
        if _DERIVED.fullmatch(name) and (folder / MANIFEST).exists():
            if name not in _noted(folder):
                descriptor = os.open(folder / NOTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
                try:
                    os.write(descriptor, f"{name}\n".encode())
                finally:
                    os.close(descriptor)
            return


def derived_files(folder: Path) -> list[str]:
    """The names of all such files that we wrote to a run folder, and that are there."""
    if (folder / MANIFEST).exists():
        names = list(dict.fromkeys((*_READ, *_noted(folder), NOTED)))
    else:  # of version 0.1, which noted nothing
        found = [path.relative_to(folder).as_posix() for path in folder.glob("ood-*/ood.*")]
        names = [*_NAMES, *(f"figures/{name}.png" for name in _FIGURES), *filter(_DERIVED.fullmatch, found)]
    return [name for name in names if (folder / name).is_file()]


def _noted(folder: Path) -> list[str]:
    try:
        lines = (folder / NOTED).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in dict.fromkeys(lines) if _DERIVED.fullmatch(line)]
