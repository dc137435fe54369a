"""Where the data come from, and which settings are for which data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..kinds import Condition, only


def traits_of(source: str | None) -> set[str] | None:
    """What kind of data these are: "table" or "image", "own" where they are no known data set, "pictures" in a folder.

    For a known data set also the settings that its loader takes. None where there is nothing of that name.
    """
    from ..data.datasets import find_dataset
    from ..data.images import holds_images

    if source is None:
        return None
    entry, path = find_dataset(source), Path(source).expanduser()
    if entry is None and path.exists():
        kind = "image" if holds_images(source) else "table"
        return {kind, "own", f"own {kind}", *(["pictures"] if path.is_dir() else [])}
    return None if entry is None else {"image" if entry.kind == "image" else "table", *entry.options}


def for_data(text: str, *traits: str) -> Condition:
    """The condition that the data have one of these traits; it holds too where nothing is known about them."""

    def holds(found: set[str] | None) -> bool:
        return found is None or not found.isdisjoint(traits)

    return Condition(("data",), lambda get: holds(traits_of(get("data"))), text=text)


_OWN_TABLE = for_data("a table of your own", "own table")
_MORE = for_data("data of your own, or images", "own", "image")


@dataclass(frozen=True)
class DataSettings:
    """Where the data come from.

    Args:
        data: a file (CSV, TSV, NPY, NPZ, Parquet), a folder or array of images, or the name of a known data set ('rnf data
            list').
        columns: only these columns, by name or by number from 1.
        exclude: all columns but these.
        drop_invalid: drop rows with missing or infinite values instead of refusing them.
        validation_data: file with the validation rows, instead of a share of the data.
        test_data: file with the test rows, instead of a share of the data.
        validation_fraction: share of the rows for validation.
        test_fraction: share of the rows kept for testing.
        radius_noise: standard deviation of the radius of the circle.
        periodic: columns that are angles, each with its period: hour:24, wind:degrees, phase:radians. Without a period,
            360 or 2π is guessed from the values. all, or all:degrees, for every column.
        sphere: two columns, latitude and longitude in degrees: points of the unit sphere in R³, never standardised.
        image_size: scale pictures to this height and width, or one number for both.
    """

    data: str | None = None
    columns: tuple[str, ...] | None = only(None, _OWN_TABLE)
    exclude: tuple[str, ...] | None = only(None, _OWN_TABLE)
    periodic: tuple[str, ...] | None = only(None, _OWN_TABLE)
    drop_invalid: bool = only(False, _OWN_TABLE)
    validation_data: str | None = only(None, _MORE)
    test_data: str | None = only(None, _MORE)
    validation_fraction: float = only(0.1, for_data("data that have no validation part", "own", "validation_fraction"))
    test_fraction: float = only(0.1, for_data("data of your own", "own"))
    radius_noise: float = only(0.0, for_data("the circle", "radius_noise"))
    sphere: bool = only(False, _OWN_TABLE)
    image_size: tuple[int, ...] | None = only(None, for_data("a folder of pictures", "pictures"))

    def __post_init__(self) -> None:
        if self.sphere and self.periodic:
            raise ValueError("sphere takes latitude and longitude as places already; leave out periodic")
        size = self.image_size
        if size is not None and not (len(size) in (1, 2) and min(size) >= 1):
            got = ",".join(map(str, size))
            raise ValueError(
                f"expected image_size as height and width, such as 32,48, or one number for both; got {got}"
            )

    @property
    def height_and_width(self) -> tuple[int, int] | None:
        """Of ``image_size``."""
        return None if self.image_size is None else (self.image_size[0], self.image_size[-1])
