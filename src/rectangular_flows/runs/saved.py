"""A run on disk: the one way to open a run folder."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..atlas import Model
from ..data.columns import WholeTable
from ..data.datasets import place_of
from ..data.discrete import Levels
from ..data.images import images_like
from ..data.pixels import ImageRows
from ..data.rows import Rows, take
from ..data.tables import Table
from ..errors import warn
from ..settings import DataSettings, FitSettings
from ..storage.files import fingerprint
from ..storage.manifest import Stored, read_files
from ..storage.models import CALIBRATION, DESCRIPTION, WEIGHTS, build_model, description_in, read_description
from ..storage.texts import read_json
from ..training.folder import has_checkpoint, is_run, read_config
from ..training.history import read_history
from ..training.run import Epoch
from .calibration import Calibration
from .prepared import Known, Prepared, prepare, read_matching

EVALUATION = "evaluation.json"


class ChangedDataWarning(UserWarning):
    """The data of a run have changed since it was trained: its split differs, and test rows may have been trained on."""


class UnfinishedRunWarning(UserWarning):
    """The training of a run was stopped before its end, or goes on: what is used is its best model so far."""


class SavedRun:
    """A run folder, or the folder of a saved estimator. Each part is read once, when it is first asked for.

    Args:
        path: the folder that ``rnf fit``, :func:`rectangular_flows.fit` or ``estimator.save`` wrote.

    Raises:
        FileNotFoundError: there is neither a model nor a run in the folder.

    Example:
        >>> run = SavedRun("runs/mine")  # doctest: +SKIP
        >>> run.flow.score(run.rows("new.csv")).log_prob  # doctest: +SKIP
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not is_run(self.path):
            read_description(self.path)

    def __repr__(self) -> str:
        return f"SavedRun({str(self.path)!r})"

    # --- the model

    @cached_property
    def _files(self) -> dict[str, bytes]:
        """The files of the model, all of one state: the run may still be training."""
        return read_files(self.path, (DESCRIPTION, WEIGHTS, CALIBRATION))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the files of the model: another one scores otherwise."""
        digest = hashlib.sha256()
        for name, content in sorted(self._files.items()):
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()

    @cached_property
    def flow(self) -> Model:
        """The model, on the CPU."""
        if self.unfinished:
            so_far = "what is saved is its best model so far, perhaps its start"
            warn(UnfinishedRunWarning, f"this run is not finished: {so_far}. Continue it: rnf fit --resume {self.path}")
        return build_model(self._files, self.path)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What was saved with the model: names of columns, the parameters of an estimator."""
        found: dict[str, Any] = description_in(self._files, self.path)["facts"]
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the model's columns; x1, x2, … where it was given none, and for images."""
        names = self.facts.get("columns") or self.facts.get("estimator", {}).get("feature_names_in")
        if self.whole is not None:
            names = self.whole.seen
        if names and len(names) != self.flow.ambient_dim:
            text = f"{len(names)} names of columns for a model of {self.flow.ambient_dim}"
            raise ValueError(f"{self.path / DESCRIPTION} is damaged: it has {text}")
        return tuple(names or [f"x{i + 1}" for i in range(self.flow.ambient_dim)])

    @cached_property
    def whole(self) -> WholeTable | None:
        """All columns of the table it was trained on, where the model does not see some of them; None where it sees all."""
        fitted = self.facts.get("estimator", {})
        used = fitted.get("used", {})
        if used.get("constant") or used.get("copies"):
            names = fitted["feature_names_in"] or [f"x{i + 1}" for i in range(used["count"])]
            return self._whole({"names": names, "rows": fitted.get("train_rows") or 0, **used})
        return self._whole(self.facts.get("whole"))

    def _whole(self, listed: Any) -> WholeTable | None:
        if listed is None:
            return None
        try:
            return WholeTable.from_list(listed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{self.path} is damaged: it does not say which columns were left out") from error

    @property
    def levels(self) -> Levels:
        """The values of columns that have few of them; none of models that were saved without."""
        listed = self.facts.get("levels") or self.facts.get("estimator", {}).get("levels") or {}
        try:
            return Levels.from_list(listed, self.flow.ambient_dim)
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{self.path / DESCRIPTION} is damaged: {error}") from error

    @property
    def sphere(self) -> tuple[str, ...] | None:
        """On latitudes and longitudes, their names in the data, () if they had none; None for any other run."""
        names = self.facts.get("sphere")
        return None if names is None else tuple(names)

    # --- how it was made

    @cached_property
    def config(self) -> dict[str, Any]:
        """All of ``config.toml``: the settings, and the record of what was trained on what."""
        return read_config(self.path)

    @cached_property
    def settings(self) -> FitSettings:
        """The settings of the run."""
        return FitSettings.from_flat({}, {key: value for key, value in self.config.items() if key != "record"})

    @property
    def record(self) -> dict[str, Any]:
        """When the run began, with which versions, and the fingerprints of its rows."""
        found: dict[str, Any] = self.config.get("record", {})
        return found

    @property
    def trained(self) -> bool:
        """Whether it is a run, finished or not, and no saved model or estimator."""
        return is_run(self.path)

    @property
    def unfinished(self) -> bool:
        """Whether it is a run that can be resumed before its end."""
        stored = Stored(self.path)
        return stored.manifest is not None and has_checkpoint(self.path) and not stored.facts.get("finished")

    @cached_property
    def history(self) -> list[Epoch]:
        """One entry for each validation."""
        return read_history(self.path)

    # --- its data

    @cached_property
    def data(self) -> Prepared:
        """The data that the run was trained on, split as they were then; a warning where their values have changed.

        Raises:
            ValueError: the run does not know its data, or they cannot be read.
        """
        settings, source = self.settings, self.settings.data.data
        if source is None:
            raise ValueError(
                f"{self.path} does not say what it was trained on: it was made in Python, not by rnf fit. "
                f"Use rnf score {self.path} DATA with rows of your own, or rnf sample"
            )
        data = prepare(settings.data, settings.model.latent_dim, settings.training.seed, known=self.known)
        self.check_shape(data.train, source)
        before = self.record.get("train_sha256")
        if before is not None and place_of(source) is not None and fingerprint(data.train) != before:
            text = f"'{source}' has changed since {self.path} was trained on it: some of its test rows may have been"
            warn(ChangedDataWarning, f"{text} trained on. Score the new rows with rnf score, or train again")
        return data

    @property
    def known(self) -> Known | None:
        """The columns by which files are matched; None for images, and for a run without a model yet."""
        if "columns" in self.record:  # not so in runs of version 0.1
            columns, degrees = self.record["columns"], self.record.get("sphere")
            whole = self._whole(self.record.get("whole"))
            return Known(tuple(columns), None if degrees is None else tuple(degrees), whole) if columns else None
        if not (self.path / DESCRIPTION).exists() or "image" in self.facts:
            return None
        return Known(self.columns, self.sphere)

    def rows(self, source: str | Path, drop_invalid: bool = False) -> Tensor:
        """The rows of other data in the order and precision of the model's columns.

        Args:
            source: a file or the name of a data set. Columns of a table are matched by name, and others are ignored;
                images must have the model's shape. Of data with a test part, the test rows.
            drop_invalid: leave out rows of a table with missing or infinite values.

        Raises:
            ValueError: a column is missing, or the shape is another.
        """
        if self.flow.kind == "image":
            return torch.from_numpy(ImageRows(images_like(source, self.flow.data_shape))[:]).to(self.flow.row_dtype)
        return torch.from_numpy(np.array(self.table(source, drop_invalid).values)).to(self.flow.row_dtype)

    def table(self, source: str | Path, drop_invalid: bool = False) -> Table:
        """The same as a table, which says which rows were left out; for models of tables."""
        if place_of(source) is None:
            data = prepare(DataSettings(str(source)), None, 0)
            return Table(self.match(data.test, data.columns, str(source)).numpy(), self.columns, str(source))
        return read_matching(source, Known(self.columns, self.sphere), drop_invalid)

    def match(self, rows: Rows, columns: tuple[str, ...], source: str) -> Tensor:
        """Rows of a known data set in the order of the model's columns: by name, or as they are where names differ."""
        self.check_shape(rows, source)
        values = take(rows, slice(None))
        return values[:, [columns.index(name) for name in self.columns]] if {*columns} == {*self.columns} else values

    def check_shape(self, rows: Rows, source: str) -> None:
        """Refuse rows of another shape than the model's."""
        if tuple(rows.shape[1:]) == tuple(self.flow.data_shape):
            return
        wanted, got = ("×".join(map(str, shape)) for shape in (self.flow.data_shape, rows.shape[1:]))
        if self.flow.kind == "image":
            advice = "Bring them to that shape, as a .npy file or a folder (whose pictures are resized)"
            raise ValueError(
                f"expected images of {wanted}, as {self.path} was trained on; those of {source} are {got}. {advice}"
            )
        raise ValueError(f"expected {wanted} columns, as {self.path} was trained on; {source} has {got}")

    # --- what was made of it

    @cached_property
    def calibration(self) -> Calibration | None:
        """What is usual, for the outlier score; None for an unfinished run, and for a model saved by itself."""
        return Calibration.of_estimator(self.facts.get("estimator", {})) or Calibration.from_files(
            self._files, self.path
        )

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """What ``rnf evaluate`` found last; None where it was not run."""
        path = self.path / EVALUATION
        return read_json(path, f"Write it again: rnf evaluate {self.path}") if path.exists() else None
