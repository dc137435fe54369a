"""Points on the Earth or any sphere: latitude and longitude in degrees, and the corresponding unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ._files import Array, DataError, MissingFileError, listing, parts_of
from .tables import Table, read_table

DEGREES = ("latitude", "longitude")
"""The columns of a user's file, and of samples."""
XYZ = ("x", "y", "z")
"""The columns of the model: x towards 0° N 0° E, y towards 0° N 90° E, z towards the north pole."""

_LIMITS = (90.0, 360.0)


@dataclass(frozen=True, eq=False)
class SphereTable(Table):
    """A table of x, y and z, made of latitudes and longitudes.

    Attributes:
        degrees: the names of the latitude and the longitude in the file; empty if no name told them apart.
    """

    degrees: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What was assumed about the file, or ''."""
        return "" if self.degrees else f"'{self.source}' names no columns: taken as latitude, longitude"


def to_xyz(degrees: Array) -> Array:
    """Unit vectors, (N, 2) → (N, 3), in float64.

    Example:
        >>> to_xyz(np.array([[0.0, 90.0], [-90.0, 17.0]])).round(6) + 0.0
        array([[ 0.,  1.,  0.],
               [ 0.,  0., -1.]])
    """
    latitude, longitude = np.radians(np.asarray(degrees, dtype=np.float64)).T
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)


def to_degrees(xyz: Array) -> Array:
    """Latitude and longitude (−180 to 180) of the radial projections on the sphere, (N, 3) → (N, 2), in float64.

    Example:
        >>> to_degrees(np.array([[0.0, -2.0, 0.0]]))
        array([[  0., -90.]])
    """
    x, y, z = np.asarray(xyz, dtype=np.float64).T
    return np.degrees(np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], axis=1))


def degree_columns(table: Table) -> tuple[int, int]:
    """Which column is the latitude and which the longitude: by name (lat…, lon…, lng…, in any case), else in that order.

    If only one of the two columns has such a name, the remaining one is the other.

    Raises:
        DataError: there are not two columns, or both are named as the same one.

    Example:
        >>> degree_columns(Table(np.zeros((1, 2)), ("Lng", "Lat"), "a.csv"))
        (1, 0)
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


def read_sphere(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    drop_invalid: bool = False,
) -> SphereTable:
    """The points of a file of latitudes and longitudes, as unit vectors.

    The arguments are those of :func:`~rectangular_flows.data.tables.read_table`.

    Raises:
        DataError: there are not two such columns, or a value is out of range; the message says where.
    """
    table = read_table(path, columns=columns, exclude=exclude, drop_invalid=drop_invalid)
    order = degree_columns(table)
    for column, name, limit in zip(order, DEGREES, _LIMITS, strict=True):
        _check_range(table, column, name, limit)
    values = np.concatenate([to_xyz(table.values[part][:, list(order)]) for part in parts_of(table.values)])
    degrees = tuple(table.columns[i] for i in order) if any(map(_kind, table.columns)) else ()
    return SphereTable(values, XYZ, table.source, table.dropped, kept=table.kept, degrees=degrees)


def read_more(path: str | Path, degrees: tuple[str, ...], drop_invalid: bool = False) -> SphereTable:
    """Another file for the same model: its columns of the same names, or else its only two columns."""
    if degrees:
        try:
            return read_sphere(path, columns=degrees, drop_invalid=drop_invalid)
        except MissingFileError:
            raise
        except DataError as error:
            try:
                return read_sphere(path, drop_invalid=drop_invalid)
            except DataError:
                raise error from None
    return read_sphere(path, drop_invalid=drop_invalid)


def _kind(name: str) -> str:
    """What the name of a column stands for: 'latitude', 'longitude' or ''."""
    name = name.strip().lower()
    if name.startswith("lat"):
        return "latitude"
    return "longitude" if name.startswith(("lon", "lng")) else ""


def _check_range(table: Table, column: int, name: str, limit: float) -> None:
    values = table.values[:, column]
    bad = np.flatnonzero(~(np.abs(values) <= limit))
    if not len(bad):
        return
    advice = "Is it in degrees? Correct or remove such rows."
    if name == "latitude":
        advice = "Are the columns swapped? Name them in the header line, or give them in order with --columns."
    raise DataError(
        f"Expected a {name} from −{limit:g} to {limit:g} degrees in column '{table.columns[column]}' of "
        f"'{table.source}'; got {values[bad[0]]:g} in row {bad[0] + 1} of the data; {len(bad)} of "
        f"{len(values)} rows are out of range. {advice}"
    )
