"""Data that several processes of a machine share: one of them opens the files, the others map its arrays into memory."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.columns import WholeTable
from ..data.periodic import PeriodicColumn
from ..data.pixels import ImageRows
from ..data.rows import Picked, Rows
from ..training.distributed import World
from .prepared import Prepared

_PARTS = ("train", "validation", "test")
_FACTS = "facts.json"


def open_once(world: World, prepare: Callable[[], Prepared]) -> Prepared:
    """The data, so that a machine holds them once and each process reads the rows that it needs.

    Files that are mapped into memory anyway (NPY) are opened by each process. Of others the first process of each machine
    writes the rows to a temporary folder, which is removed as soon as all have mapped it: a kill leaves nothing behind.
    """
    if world.size == 1:
        return prepare()
    data = prepare() if world.local_rank == 0 else None
    folder = "" if data is None or _on_disk(data) else _written(data)
    try:
        place = world.texts(folder)[world.rank - world.local_rank]  # of the first process of this machine
        if place:
            data = _mapped(Path(place))
        found = data or prepare()
        world.wait()
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _on_disk(data: Prepared) -> bool:
    """Whether some part is mapped into memory already."""
    parts = [getattr(data, part) for part in _PARTS]
    arrays = [part.images if isinstance(part, ImageRows) else part for part in parts]
    return any(isinstance(array, Picked | np.memmap) for array in arrays)


def _written(data: Prepared) -> str:
    folder = Path(tempfile.mkdtemp(prefix="rnf-rows-"))
    facts: dict[str, Any] = {"columns": data.columns, "note": data.note, "degrees": data.degrees, "seeds": {}}
    facts["periodic"] = [asdict(column) for column in data.periodic]
    facts["whole"] = None if data.whole is None else data.whole.listed()
    for name in _PARTS:
        rows: Rows = getattr(data, name)
        if isinstance(rows, ImageRows):
            facts["seeds"][name] = rows.seed
        values = rows.images if isinstance(rows, ImageRows) else torch.as_tensor(rows).numpy()
        np.save(folder / f"{name}.npy", values)
    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return str(folder)


def _mapped(folder: Path) -> Prepared:
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    seeds, rows = facts["seeds"], {}
    for name in _PARTS:
        values = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        seed = seeds.get(name)
        rows[name] = values if seed is None else ImageRows(values, seed if isinstance(seed, int) else tuple(seed))
    columns, degrees = tuple(facts["columns"]), tuple(facts["degrees"])
    periodic = tuple(PeriodicColumn(**column) for column in facts["periodic"])
    whole = None if facts["whole"] is None else WholeTable.from_list(facts["whole"])
    return Prepared(**rows, columns=columns, note=facts["note"], degrees=degrees, periodic=periodic, whole=whole)
