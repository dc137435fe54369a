"""Points on the Earth or any sphere: latitude and longitude in degrees, and the corresponding unit vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..storage.files import parts_of
from ._files import Array, DataError, MissingFileError, listing
from .tables import Table, read_table

DEGREES = ("latitude", "longitude")
"""The columns of a user's file, and of samples."""
XYZ = ("x", "y", "z")
"""The columns of the model: x towards 0° N 0° E, y towards 0° N 90° E, z towards the north pole."""

_LIMITS = {
    "latitude": (90, "Are the columns swapped? Name them in the header line, or give them in order with --columns."),
    "longitude": (360, "Is it in degrees? Correct or remove such rows."),
}


@dataclass(frozen=True, eq=False)
class SphereTable(Table):
    """A table of x, y and z, made of latitudes and longitudes."""

    degrees: tuple[str, ...] = ()  # their names in the file; empty if no name told them apart

    @property
    def note(self) -> str:
        """What was assumed about the file, or ''."""
        return "" if self.degrees else f"'{self.source}' names no columns: taken as latitude, longitude"


def to_xyz(degrees: Array) -> Array:
    """Unit vectors, (N, 2) → (N, 3), in float64."""
    latitude, longitude = np.radians(np.asarray(degrees, dtype=np.float64)).T
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)


def to_degrees(xyz: Array) -> Array:
    """Latitude and longitude (−180 to 180) of the radial projections on the sphere, (N, 3) → (N, 2), in float64."""
    x, y, z = np.asarray(xyz, dtype=np.float64).T
    return np.degrees(np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], axis=1))


def degree_columns(table: Table) -> tuple[int, int]:
    """Which column is the latitude and which the longitude: by name (lat…, lon…, lng…, in any case), else in that order.

    If only one of the two columns has such a name, the remaining one is the other.
    """
    if len(table.columns) != 2:
        raise DataError(
            f"Expected 2 columns, latitude and longitude in degrees; '{table.source}' has {len(table.columns)} "
            f"({listing(table.columns)}). Choose two with --columns, by name or by number from 1, or leave out --sphere."
        )
    first, second = map(_kind, table.columns)
    if first == second != "":
        raise DataError(
            f"Expected one latitude and one longitude; '{table.source}' has {listing(table.columns)}. "
            "Choose the two with --columns, or name them latitude and longitude in the header line."
        )
    return (1, 0) if first == "longitude" or second == "latitude" else (0, 1)


def read_sphere(path: str | Path, **options: Any) -> SphereTable:
    """The points of a file of latitudes and longitudes as unit vectors; options as for :func:`.tables.read_table`."""
    table = read_table(path, **options)
    order = degree_columns(table)
    for column, name in zip(order, DEGREES, strict=True):
        values, (limit, advice) = table.values[:, column], _LIMITS[name]
        bad = np.flatnonzero(~(np.abs(values) <= limit))
        if len(bad):
            raise DataError(
                f"Expected a {name} from −{limit} to {limit} degrees in column '{table.columns[column]}' of "
                f"'{table.source}'; got {values[bad[0]]:g} in row {bad[0] + 1} of the data; {len(bad)} of "
                f"{len(values)} rows are out of range. {advice}"
            )
    values = np.concatenate([to_xyz(table.values[part][:, list(order)]) for part in parts_of(table.values)])
    degrees = tuple(table.columns[i] for i in order) if any(map(_kind, table.columns)) else ()
    return SphereTable(values, XYZ, table.source, table.dropped, kept=table.kept, degrees=degrees)


def read_more(path: str | Path, degrees: tuple[str, ...], drop_invalid: bool = False) -> SphereTable:
    """Another file for the same model: its columns of the same names, or else its only two columns."""
    try:
        return read_sphere(path, columns=degrees or None, drop_invalid=drop_invalid)
    except MissingFileError:
        raise
    except DataError as error:
        try:
            return read_sphere(path, drop_invalid=drop_invalid)
        except DataError:
            raise error from None


def _kind(name: str) -> str:
    """What the name of a column stands for: 'latitude', 'longitude' or ''."""
    return {"lat": "latitude", "lon": "longitude", "lng": "longitude"}.get(name.strip().lower()[:3], "")
