"""``rnf sample`` and ``rnf score``: what a trained model is used for."""

from __future__ import annotations

import argparse
import io
import math
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from ..data.images import picture_names
from ..data.rows import Rows, take
from ..data.sphere import DEGREES, to_degrees
from ..data.tables import write_table
from ..errors import warn
from ..evaluation.image_samples import draw_bytes
from ..manifold import RectangularFlow
from ..metrics.out_of_distribution import CombinedScore
from ..runs.saved import SavedRun
from ..storage.files import load_tensors, save_tensors, write_atomically
from ..training.folder import CONFIG
from .arguments import add_drop_invalid, add_run

_IMAGES = (".npy", ".npz", ".png")
_CALIBRATION = "calibration.safetensors"
_CALIBRATION_ROWS = 5_000
_FAR_FROM_SPHERE = 0.05


class OffSphereWarning(UserWarning):
    """Samples of a model of the sphere are far from it: only their directions mean something."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, which rows, what to write and where to."""
    add_run(parser)
    text = "file with the columns the model was trained on; images: a data set, a folder or an array, of which the test"
    parser.add_argument("data", metavar="DATA", help=f"{text} images are scored where some are set apart, or else all")
    text = "CSV, TSV, NPY, NPZ or Parquet (default: %(default)s)"
    parser.add_argument("-o", "--output", type=Path, default=Path("scores.csv"), help=text)
    parser.add_argument("--coordinates", action="store_true", help="also the coordinates z on the manifold")
    add_drop_invalid(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score and write."""
    chosen = (arguments.drop_invalid, arguments.coordinates)
    return score_command(arguments.folder, arguments.data, arguments.output, *chosen)


def sample_command(run: Path, count: int, output: Path | None, seed: int) -> int:
    """Draw samples and write them as a table with the columns of the data, as latitudes and longitudes, or as images."""
    if count < 1:
        raise ValueError(f"expected at least one sample; got -n {count}")
    saved = SavedRun(run)
    flow, columns = saved.flow, saved.columns
    images = flow.kind == "image"
    output = output or Path("samples.npy" if images else "samples.csv")
    if images and output.suffix.lower() not in _IMAGES:
        raise ValueError(f"images are written as {', '.join(_IMAGES)}; got {output}. Say -o samples.png")
    output.parent.mkdir(parents=True, exist_ok=True)
    if images:
        _write_images(output, draw_bytes(flow, count, seed))
        return _say(f"{count} images in {output}")
    samples = flow.sample(count, generator=torch.Generator().manual_seed(seed))
    values = samples.flatten(1).numpy()
    if saved.sphere is not None:
        off = float(np.abs(np.linalg.norm(values.astype(np.float64), axis=1) - 1).mean())
        if off > _FAR_FROM_SPHERE:
            text = f"the samples are {off:.3g} from the unit sphere on average, more than {_FAR_FROM_SPHERE:g}"
            warn(OffSphereWarning, f"{text}; their directions are written. Train longer, or with a larger beta.")
        columns, values = DEGREES, to_degrees(values)
    write_table(output, columns, values)
    return _say(f"{count} samples in {output}")


def _write_images(output: Path, images: np.ndarray) -> None:
    """Bytes (N, C, H, W) as an array, or as one picture of rows and columns."""
    file = io.BytesIO()
    if output.suffix.lower() == ".png":
        from ..plots.images import mosaic, png

        side = max(images.shape[2:])
        scale = max(2 if side <= 64 else 1, 56 // side)  # small images would be hard to see
        file.write(png(mosaic(images, columns=math.ceil(math.sqrt(len(images))), scale=scale)))
    elif output.suffix.lower() == ".npz":
        np.savez_compressed(file, images=images)
    else:
        np.save(file, images)
    write_atomically(output, file.getvalue())


def _say(text: str) -> int:
    Console().print(text, highlight=False, soft_wrap=True, markup=False)
    return 0


def score_command(run: Path, data: str, output: Path, drop_invalid: bool, coordinates: bool) -> int:
    """Score every row of a table, or image: log-density of its projection, distance from the manifold, outlier score."""
    saved = SavedRun(run)
    flow, numbers, dropped = saved.flow, None, 0
    if flow.kind == "image":
        rows = saved.rows(data)
    else:
        table = saved.table(data, drop_invalid)
        rows, numbers, dropped = torch.from_numpy(np.array(table.values)).to(flow.dtype), table.kept, table.dropped
    log_density, error = scores(flow, rows)
    names, values = ["log_density", "reconstruction_error"], [log_density, error]
    calibration = run / _CALIBRATION
    if calibration.exists():
        kept = load_tensors(calibration)
        combined = CombinedScore().fit(kept["log_density"].numpy(), kept["reconstruction_error"].numpy())
        names.append("outlier_score")
        values.append(-combined(log_density, error))
    else:
        how = f"the run was not finished: rnf fit --resume {run}"
        _say(f"note: no outlier_score, since {how if (run / CONFIG).exists() else 'no run of rnf fit is there'}")
    if coordinates:
        with torch.no_grad():
            parts = [flow.encode(part) for part in rows.split(flow.rows_at_once())]
            z = torch.cat(parts).numpy().astype(np.float64)
        names += [f"z{i + 1}" for i in range(z.shape[1])]
        values += list(z.T)
    if numbers is not None:  # which of the rows of the file these are
        names, values = ["row", *names], [numbers, *values]
        left_out = f"{dropped} of {dropped + len(rows)} rows have missing or infinite values and were left out"
        _say(f"note: {left_out}; the column 'row' says which are there, from 1")
    output.parent.mkdir(parents=True, exist_ok=True)
    files = picture_names(data) if flow.kind == "image" else None
    write_table(output, names, np.stack(values, axis=1), text=None if files is None else ("file", files))
    summary = (
        f"{len(rows)} rows in {output}: mean log-density {log_density.mean():.4g}, "
        f"mean squared distance from the manifold {error.mean():.4g}"
    )
    return _say(summary)


@torch.no_grad()
def scores(flow: RectangularFlow, rows: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Log-density and squared distance from the manifold of each row, in the units of the data, float64."""
    error = torch.cat([flow.reconstruction_error(part) for part in rows.split(flow.rows_at_once())])
    return flow.log_prob(rows).double().numpy(), error.numpy()


def write_calibration(flow: RectangularFlow, validation: Rows, run: Path, most: int = _CALIBRATION_ROWS) -> None:
    """Keep the scores of validation rows, at most so many, with the model: what is usual, for judging what is not."""
    dtype = flow.dtype
    rows = take(validation, slice(min(most, _CALIBRATION_ROWS)), dtype=dtype)
    log_density, error = scores(flow.cpu(), rows)
    kept = {"log_density": torch.from_numpy(log_density), "reconstruction_error": torch.from_numpy(error)}
    save_tensors(run / _CALIBRATION, kept)


__all__ = ["OffSphereWarning", "add_arguments", "run", "sample_command", "score_command", "scores", "write_calibration"]
