"""The scores of a folder of tables as a folder: one part for each file, and a list of the parts that are finished."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..data.tables import DataError, table_suffix
from ..storage.files import write_atomically
from ..storage.lock import locked
from ..storage.spool import UnfinishedError
from ..storage.texts import as_json, read_json
from .scored import Scoring, write_scores
from .totals import Totals, Written

LIST = "scores.json"
"""In the folder of scores: of what they were made, which parts there are, and whether these are all."""
_AGAIN = "Begin again with --restart"


def tables_in(folder: Path) -> list[Path]:
    """The tables in a folder and in the folders in it, in the order of their names, without hidden ones and ``_…``.

    Raises:
        DataError: there is none.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith((".", "_")) for part in name.parts):
            try:
                table_suffix(path)
            except DataError:
                continue
            found.append(name)
    if not found:
        raise DataError(f"Expected tables (Parquet, CSV, NPY, …) in the folder '{folder}'; got none.")
    return found


def write_folder(
    opened: Callable[[Path], Scoring],
    source: Path,
    output: Path,
    score: Callable[..., Written] = write_scores,
    said: Callable[[str], None] | None = None,
    *,
    resume: bool = False,
    restart: bool = False,
) -> Written:
    """Score every table of a folder; each part of the output has the name of its table.

    ``scores.json`` in the output counts a part only when its file is complete, and says ``finished`` when all are. A call
    with ``resume`` takes over the parts that it counts, and continues the one that was cut short.

    Args:
        opened: the rows of a table, to be scored.
        source: the folder of tables.
        output: the folder of scores, which is made if need be.
        score: what scores and writes one table: :func:`~.scored.write_scores`, or something that takes the same arguments.
        said: called with a line about each table.
        resume: continue unfinished work, if there is any.
        restart: do all of it again.

    Raises:
        UnfinishedError: there is work of another model, other options or a table that has changed; or neither was asked for.
        DataError: there is no table, or one cannot be scored.
    """
    names = tables_in(source)
    if output.suffix and not output.is_dir():
        raise DataError(f"Expected a folder for the scores of the folder '{source}'; got '{output}'. Use -o scores.")
    if output.resolve() == source.resolve():
        raise DataError(f"Expected another folder for the scores than that of the tables; got '{output}'.")
    output.mkdir(parents=True, exist_ok=True)
    with locked(output):
        before = read_json(output / LIST, _AGAIN) if (output / LIST).exists() and not restart else {}
        if before and not resume:
            raise UnfinishedError(
                f"{output} has the scores of {len(before['parts'])} tables already: continue with --resume, or begin again "
                "with --restart"
            )
        parts: dict[str, Any] = {}
        notes: list[str] = []
        for name in names:
            scoring, path = opened(source / name), output / name
            key = {**scoring.key}
            data = key.pop("the data")
            changed = [what for what in key if before and before["key"].get(what) != key[what]]
            known = before.get("parts", {}).get(name.as_posix())
            changed += [str(source / name)] if known is not None and known["data"] != data else []
            if changed:
                raise UnfinishedError(f"{output} cannot be resumed: {' and '.join(changed)} changed. {_AGAIN}")
            if known is None or not path.is_file() or _digest(path) != known["scores"]:
                written = score(scoring, path, resume=resume, restart=restart)
                totals = asdict(replace(written.totals, most_unusual=[]))
                known = {"rows": written.rows, "data": data, "scores": _digest(path), "totals": totals}
                notes += [f"{name}: {note}" for note in written.notes]
            parts[name.as_posix()] = known
            finished = len(parts) == len(names)
            listed = {"finished": finished, "key": key, "parts": {**before.get("parts", {}), **parts}}
            write_atomically(output / LIST, as_json(listed if not finished else {**listed, "parts": parts}))
            if said is not None:
                said(f"{len(parts)} of {len(names)}: {known['rows']} rows in {path}")
        totals_of_all = Totals.sum(Totals.of(part["totals"]) for part in parts.values())
        return Written(sum(part["rows"] for part in parts.values()), totals_of_all, notes)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
