"""What a run is, in a few lines."""

from __future__ import annotations

from typing import Any

from ..settings import DEFAULT_PRESET, FitSettings, read_preset
from .display import duration
from .saved import SavedRun

_MOST_COLUMNS = 12
_PLACES = ("data", "validation_data", "test_data")


def describe_run(run: SavedRun) -> list[str]:
    """The model, what it was trained on and for how long, its columns, and the settings that are not the defaults."""
    flow, images = run.flow, run.flow.kind == "image"
    within = f"images of {'×'.join(map(str, flow.data_shape))}" if images else f"{flow.ambient_dim} columns"
    space, charts = flow.charts[0].latent.space, len(flow.charts)
    closed = "" if space.flat else f" (latent space {space})"
    closed += f", of {charts} charts," if charts > 1 else ""
    model = f"a manifold of dimension {flow.latent_dim}{closed} in {within}, {flow.dtype}".replace("torch.", "")
    lines = [f"{run.path}: {model}"]
    if not run.trained:
        kind = "a saved estimator" if "estimator" in run.facts else "a model saved by itself"
        return [*lines, kind, *([] if images else [_columns(run)])]
    source, count = run.settings.data.data, run.record.get("train_rows")
    rows = "" if count is None else f", {count:,} rows"
    kind = "the data set " if run.facts.get("source") == "data set" else ""
    trained = f"trained on {f'{kind}{source}' if source else 'rows given in Python'}{rows}"
    if run.history:
        last = run.history[-1]
        trained += f"; {last.epoch} epochs in {duration(last.seconds)}"
    version = run.record.get("rectangular_flows") or run.record.get("version")
    lines.append(trained + (f"; rectangular-flows {version}" if version else ""))
    if not images:
        lines.append(_columns(run))
    if (turns := flow.periodic) is not None:
        named = (f"{run.columns[i]} ({period:.6g})" for i, period in zip(turns.columns, turns.periods, strict=True))
        lines.append(f"periodic columns, with their periods: {', '.join(named)}")
    changed = ", ".join(f"{name} = {_shown(value)}" for name, value in changed_settings(run).items())
    return [*lines, f"settings: {changed or 'the defaults'}" + (" (the rest: defaults)" if changed else "")]


def changed_settings(run: SavedRun) -> dict[str, Any]:
    """The settings of a run that differ from the defaults of ``rnf fit``, but for the names of its files."""
    own = run.settings.flat()
    usual = FitSettings.from_flat({}, read_preset(DEFAULT_PRESET)).flat()
    return {
        name: value
        for name, value in own.items()
        if name not in _PLACES and _plain(value) != _plain(usual.get(name)) and value is not None
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()


def _columns(run: SavedRun) -> str:
    names = run.columns
    more = f" and {len(names) - _MOST_COLUMNS} more" if len(names) > _MOST_COLUMNS else ""
    left_out = "" if run.whole is None else f"; left out: {', '.join(run.whole.others[:_MOST_COLUMNS])}"
    return f"columns: {', '.join(names[:_MOST_COLUMNS])}{more}{left_out}"
