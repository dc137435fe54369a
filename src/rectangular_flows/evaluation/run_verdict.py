"""The verdict on a run: on its test rows, kept in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..atlas import Model
from ..runs.prepared import Prepared
from ..runs.saved import SavedRun
from ..storage.files import write_atomically
from ..storage.texts import as_json, read_json
from .measure import measure
from .verdict import ENOUGH, Verdict

VERDICT = "verdict.json"


def judge(flow: Model, data: Prepared, seed: int = 0) -> Verdict:
    """The verdict on the test rows, or where these are too few on the validation rows."""
    enough = len(data.test) >= ENOUGH or len(data.test) >= len(data.validation)
    return measure(flow, data.train, data.test if enough else data.validation, data.columns, seed=seed)


def keep_verdict(folder: Path, verdict: Verdict) -> None:
    """Write it to the run folder."""
    write_atomically(folder / VERDICT, as_json(verdict.numbers()))


def kept_verdict(run: SavedRun) -> Verdict | None:
    """The verdict that was kept with a run or an estimator; None where there is none."""
    path, advice = run.path / VERDICT, f"Judge it anew: rnf show {run.path} --again"
    kept = read_json(path, advice) if path.exists() else None
    kept = kept or run.facts.get("estimator", {}).get("verdict")
    try:
        found = None if kept is None else Verdict.from_numbers(kept)
        _ = str(found)  # which fails if its numbers are none
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}). {advice}") from error
    return found


def verdict_of(run: SavedRun, *, again: bool = False) -> Verdict:
    """That which was kept with the run, or a new one, which is then kept.

    Args:
        run: finished or not.
        again: whether to judge anew.

    Raises:
        ValueError: the run does not know its data.
    """
    if not again and (kept := kept_verdict(run)) is not None:
        return kept
    found = replace(judge(run.flow, run.data), finished=not run.unfinished)
    keep_verdict(run.path, found)
    return found
