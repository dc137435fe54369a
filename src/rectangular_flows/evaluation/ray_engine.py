"""Scoring on many machines by Ray Data: each worker has the model, and reads the rows it is given from a shared path."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..metrics.arrays import Array
from ..runs.saved import SavedRun
from .scored import AT_ONCE, Engine, ScoredRows, Scoring, open_scoring

_MOST_PARTS = 50  # of the rows that a worker is given at once
_SHARES = 4  # of the rows, at least, for each worker


def ray_engine(source: str, options: dict[str, Any], workers: int, address: str | None = None) -> Engine:
    """Scores rows on a cluster of Ray; pass it to :func:`~.scored.write_scores`.

    The model and the rows have to be at the same paths on every machine. The scores are those of a single process.

    Args:
        source: of the rows, as :func:`~.scored.open_scoring` takes it.
        options: the other arguments of that function.
        workers: how many; each has a core, and loads the model once.
        address: of a cluster; None starts Ray on this machine, "auto" finds one that runs.

    Raises:
        ValueError: Ray is not installed.
    """
    if workers < 1:
        raise ValueError(f"expected at least one worker; got --workers {workers}")
    try:
        ray, data = importlib.import_module("ray"), importlib.import_module("ray.data")
    except ImportError as error:
        raise ValueError("--engine ray needs Ray: pip install 'rectangular-flows[ray]'") from error
    if not ray.is_initialized():
        local = {"num_cpus": workers, "include_dashboard": False} if address is None else {}
        ray.init(address=address, log_to_driver=False, configure_logging=False, **local)
    context = data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False

    def parts(scoring: Scoring, tick: Callable[[int], None] | None, start: int) -> Iterator[ScoredRows]:
        if start >= len(scoring.rows):
            return
        given = {"path": str(scoring.run.path.resolve()), "source": source, "options": options}
        tasks = [{"first": first, "rows": rows} for first, rows in _shares(start, len(scoring.rows), workers)]
        scored = data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
            _Worker, fn_constructor_kwargs=given, batch_size=1, concurrency=workers, num_cpus=1
        )
        for batch in scored.iter_batches(batch_size=AT_ONCE, batch_format="numpy"):
            columns = {name: np.asarray(batch[name], dtype=np.float64) for name in scoring.columns}
            if tick is not None:
                tick(len(columns["row"]))
            yield ScoredRows(columns, {})

    return parts


def _shares(start: int, stop: int, workers: int) -> Iterator[tuple[int, int]]:
    """First rows and numbers of rows: whole parts, so that every row is scored with the same others as in one process."""
    step = AT_ONCE * min(_MOST_PARTS, max(1, (stop - start) // (AT_ONCE * workers * _SHARES)))
    return ((first, min(step, stop - first)) for first in range(start, stop, step))


class _Worker:
    """What each worker of Ray holds: the model, loaded once, and the rows, read where they are asked for."""

    def __init__(self, path: str, source: str, options: dict[str, Any]):
        import torch

        torch.set_num_threads(1)
        self._scoring = open_scoring(SavedRun(path), source, **options)

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        found: list[ScoredRows] = []
        for first, rows in zip(batch["first"].tolist(), batch["rows"].tolist(), strict=True):
            parts = self._scoring.parts(start=first)
            while rows > 0:
                found.append(next(parts))
                rows -= len(found[-1].columns["row"])
        return {name: np.concatenate([part.columns[name] for part in found]) for name in found[0].columns}
