"""The data sets known by name. One entry says what a data set is, where its files come from and how to load it."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from ..spelling import nearest
from ._files import Array, DataError, MissingFileError, by
from .download import data_root

if TYPE_CHECKING:
    from .truths import Truth


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    Attributes:
        url: where it is published.
        path: where it goes, below the data folder.
        checksum: 'sha256:…' or 'md5:…' as published. Without one, the user has to get the file by hand.
        members: for a tar archive, what to take out of it: (name in the archive, path below the data folder). A name
            matches any member that ends in it, since archives differ in their outer folder.
    """

    url: str
    path: str
    checksum: str | None = None
    members: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for path in (self.path, *self.targets):
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path:
                raise DataError(f"Expected a path below the data folder; got '{path}'.")

    @property
    def targets(self) -> tuple[str, ...]:
        """The paths, below the data folder, of the files that are needed in the end."""
        return tuple(path for _, path in self.members) or (self.path,)


@dataclass(frozen=True, eq=False)
class Splits:
    """A data set in three parts.

    Attributes:
        name: of the data set.
        train: (N, D), float32; images have a class of their own, :class:`~.images.ImageSplits`.
        validation: (N', D).
        test: (N'', D).
        columns: D names; none for images.
        note: how these rows differ from the published ones; empty where they do not.
    """

    name: str
    train: Array
    validation: Array
    test: Array
    columns: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Dataset:
    """What is known about a data set.

    Attributes:
        name: what it is called here, in lower case.
        kind: 'table', 'image' or 'synthetic'.
        description: a few words.
        shape: of one row, after preprocessing: (D,) or (channels, height, width).
        rows: how many for training, validation and test; 0 for a part that is not published.
        loader: ``loader(entry, root, **options) → Splits``, or its name, 'package.module:function', to import it at
            first use.
        options: keyword arguments of the loader, named like the settings they come from: 'seed',
            'validation_fraction', 'radius_noise'.
        files: what to download; none for synthetic data.
        aliases: other names.
        truth: where the manifold and the density are known, the name of their class, 'package.module:class'.
    """

    name: str
    kind: Literal["table", "image", "synthetic"]
    description: str
    shape: tuple[int, ...]
    rows: tuple[int, int, int]
    loader: str | Callable[..., Splits]
    options: tuple[str, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    aliases: tuple[str, ...] = ()
    truth: str = ""

    def known_truth(self) -> Truth | None:
        """The manifold and the density that the rows come from; None where they are not known."""
        found: Truth | None = pkgutil.resolve_name(self.truth)() if self.truth else None
        return found

    def load(self, root: str | Path | None = None, **options: object) -> Splits:
        """Read the data set from its files, or make it.

        Args:
            root: the data folder; by default :func:`~.download.data_root`.
            options: see ``options`` of the entry; the loader has defaults.
        """
        loader = pkgutil.resolve_name(self.loader) if isinstance(self.loader, str) else self.loader
        try:
            splits: Splits = loader(self, data_root() if root is None else Path(root), **options)
        except MissingFileError as error:
            advice = f"Get it with 'rnf data get {self.name}', or set RNF_DATA to the folder that holds '{self.name}'."
            raise MissingFileError(f"{error} {advice}") from error
        train, validation, test = len(splits.train), len(splits.validation), len(splits.test)
        # where no validation rows are published, they are taken out of the training rows
        got = (train, validation, test) if self.rows[1] else (train + validation, 0, test)
        published, here = (
            f"{' / '.join(f'{count:,}' for count in rows)} rows (training / validation / test) of {by(shape)} values"
            for rows, shape in ((self.rows, self.shape), (got, splits.train.shape[1:]))
        )
        if here == published:
            return splits
        note = splits.note or "These files are not the published ones."
        return replace(splits, note=f"{note} Published: {published}; here: {here}.")


DATASETS: dict[str, Dataset] = {}
"""All data sets by name, in the order in which they were registered."""


def register_dataset(entry: Dataset) -> None:
    """Add a data set, so that its name works wherever one is taken: ``rnf fit``, ``rnf data``, ``rnf ood``."""
    for name in (entry.name, *entry.aliases):
        if name != name.lower() or find_dataset(name) is not None:
            raise DataError(f"Expected a new name in lower case for a data set; got '{name}'.")
    DATASETS[entry.name] = entry


def find_dataset(name: str) -> Dataset | None:
    """The data set of that name or alias, in whatever case; None if there is none.

    Example:
        >>> find_dataset("FMNIST").name
        'fashion-mnist'
    """
    return next((entry for entry in DATASETS.values() if name.lower() in (entry.name, *entry.aliases)), None)


def place_of(source: str | Path) -> Path | None:
    """The path that a source means; None where it is the name of a known data set.

    A bare name of a data set always means the data set, whatever lies in the current folder: './mnist' is a path, and so
    is everything given as a ``Path``.

    Example:
        >>> place_of("mnist"), place_of("./mnist"), place_of(Path("mnist"))
        (None, PosixPath('mnist'), PosixPath('mnist'))
    """
    if isinstance(source, str) and find_dataset(source) is not None:
        if Path(source).exists():
            text = f"'{source}' is taken for the data set of that name, not for what is called so in this folder"
            from ..errors import warn  # which brings torch

            warn(SameNameWarning, f"{text}. For the latter, write ./{source}")
        return None
    return Path(source).expanduser()


class SameNameWarning(UserWarning):
    """A file or folder has the name of a known data set."""


def dataset(name: str) -> Dataset:
    """The same, with a :class:`DataError` that suggests a name if there is none."""
    found = find_dataset(name)
    if found is None:
        raise DataError(f"Expected one of {', '.join(DATASETS)}; got '{name}'.{nearest(name, DATASETS)}")
    return found


_HERE = "rectangular_flows.data"


def _known(name: str, description: str, truth: str) -> Dataset:
    """Points in space of a known manifold with a known density."""
    known: Any = {"loader": f"{_HERE}.truths:load_truth", "options": ("seed",), "truth": f"{_HERE}.truths:{truth}"}
    return Dataset(name, "synthetic", description, (3,), (10_000, 1_000, 5_000), **known)


def _table(name: str, description: str, width: int, rows: tuple[int, int, int], *files: str) -> Dataset:
    """A table of the density-estimation benchmark, whose archive holds all of them (817 MB)."""
    archive = RemoteFile(
        "https://zenodo.org/records/1161203/files/data.tar.gz",
        "downloads/density-estimation-data.tar.gz",
        "md5:9b9c9b0375315ad270eba4ce80c093ab",
        tuple((f"{name}/{file}", f"{name}/{file}") for file in files),
    )
    return Dataset(name, "table", description, (width,), rows, f"{_HERE}.benchmarks:load_{name}", files=(archive,))


def _image(name: str, base: str, sums: dict[str, str], members: Sequence[str] = (), **facts: Any) -> Dataset:
    """A set of images: files below an address, by MD5 sum; of an archive, the members to take."""
    inner = tuple((member, f"{name}/{PurePosixPath(member).name}") for member in members)
    place = "downloads" if members else name
    files = tuple(RemoteFile(f"{base}/{file}", f"{place}/{file}", f"md5:{md5}", inner) for file, md5 in sums.items())
    options = ("seed", "validation_fraction")
    return Dataset(name, "image", loader=f"{_HERE}.images:load_published", options=options, files=files, **facts)


for _entry in (
    Dataset(
        "circle",
        kind="synthetic",
        description="von Mises density on the unit circle in the plane",
        shape=(2,),
        rows=(10_000, 1_000, 5_000),
        loader=f"{_HERE}.synthetic:load_circle",
        options=("seed", "radius_noise"),
        truth=f"{_HERE}.truths:Circle",
    ),
    _known("sphere", "von Mises–Fisher density on the unit sphere in space", "Sphere"),
    _known("torus", "two von Mises angles on a torus in space", "Torus"),
    _known("swiss-roll", "a rolled-up sheet in space, with a density that is not uniform", "SwissRoll"),
    # the four tables: CC BY 4.0 (UCI)
    _table("power", "electric power of a household, by the minute", 6, (1_659_917, 184_435, 204_928), "data.npy"),
    _table(
        "gas",
        "gas sensors in mixtures of ethylene and carbon monoxide",
        8,
        (852_174, 94_685, 105_206),
        "ethylene_CO.pickle",
    ),
    _table(
        "hepmass",
        "simulated particle collisions, signal of mass 1000",
        21,
        (315_123, 35_013, 174_987),
        "1000_train.csv",
        "1000_test.csv",
    ),
    _table("miniboone", "neutrino events of the MiniBooNE experiment", 43, (29_556, 3_284, 3_648), "data.npy"),
    _image(
        "mnist",  # CC BY-SA 3.0 (LeCun and Cortes)
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        },
        description="handwritten digits",
        shape=(1, 28, 28),
        rows=(60_000, 0, 10_000),
    ),
    _image(
        "fashion-mnist",  # MIT (Zalando)
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        },
        description="pictures of clothes, in the format of MNIST",
        shape=(1, 28, 28),
        rows=(60_000, 0, 10_000),
        aliases=("fmnist", "fashion_mnist"),
    ),
    _image(
        "cifar10",  # licence not stated (Krizhevsky, 2009)
        "https://www.cs.toronto.edu/~kriz",
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        [f"cifar-10-batches-bin/{part}.bin" for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")],
        description="small photographs of ten classes",
        shape=(3, 32, 32),
        rows=(50_000, 0, 10_000),
        aliases=("cifar-10",),
    ),
    _image(
        "svhn",  # for non-commercial use (Netzer et al., 2011)
        "http://ufldl.stanford.edu/housenumbers",
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
        description="street-view house numbers",
        shape=(3, 32, 32),
        rows=(73_257, 0, 26_032),
    ),
):
    register_dataset(_entry)
