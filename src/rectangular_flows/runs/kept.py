"""Numbers about a model, kept beside it as JSON: computed once for each model and each way of asking."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..storage.files import write_atomically
from ..storage.manifest import read_files
from ..storage.models import WEIGHTS


def kept(folder: Path, name: str, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``compute`` gives; from the file, where it was computed before of this very model and under this key.

    A file of another model, or one that is damaged, is replaced.

    Args:
        folder: of a run.
        name: of the file in it.
        key: what the numbers depend on, besides the model.
        compute: its values have to be JSON.
    """
    path, model = folder / name, hashlib.sha256(read_files(folder, (WEIGHTS,))[WEIGHTS]).hexdigest()
    results = _results(path, model)
    if key not in results:
        value = compute()
        results = {**_results(path, model), key: value}  # another process may have added to it
        write_atomically(path, json.dumps({"model": model, "results": results}, indent=1) + "\n")
    found: dict[str, Any] = results[key]
    return found


def _results(path: Path, model: str) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(stored, dict) or stored.get("model") != model:
        return {}
    results = stored.get("results")
    return results if isinstance(results, dict) else {}
