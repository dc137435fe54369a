"""The data sets the project knows: what they are, where they are published, and how to tell that they arrived whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..spelling import nearest
from ._files import DataError


@dataclass(frozen=True)
class RemoteFile:
    """One file to download.

    Attributes:
        url: where it is published.
        path: where it goes, below the data folder.
        checksum: 'sha256:…' or 'md5:…' as published; None where none is known, and then the first download is trusted,
            its sum recorded, and later ones compared with it.
        members: for an archive, what to take out of it: (name in the archive, path below the data folder). A name fits
            a member that ends in it, since archives differ in their outer folder.
    """

    url: str
    path: str
    checksum: str | None = None
    members: tuple[tuple[str, str], ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The paths, below the data folder, that are there in the end."""
        return tuple(path for _, path in self.members) or (self.path,)


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Attributes:
        name: what it is called here.
        kind: 'table', 'image' or 'synthetic'.
        description: in a few words.
        files: what to download; empty for synthetic data.
        shape: of one example, after preprocessing: (D,) or (channels, height, width).
        rows: examples for training, validation and test; 0 where there is no such split.
        licence: as far as the publisher states one.
        source: the publisher's page.
    """

    name: str
    kind: Literal["table", "image", "synthetic"]
    description: str
    files: tuple[RemoteFile, ...]
    shape: tuple[int, ...]
    rows: tuple[int, int, int]
    licence: str
    source: str


def dataset(name: str) -> Dataset:
    """The data set of that name.

    Example:
        >>> dataset("power").shape
        (6,)
    """
    found = DATASETS.get(name.lower())
    if found is None:
        raise DataError(f"Expected one of {', '.join(DATASETS)}; got '{name}'.{nearest(name, list(DATASETS))}")
    return found


def _benchmark(*members: str) -> tuple[RemoteFile, ...]:
    """Files of the archive of the density-estimation benchmark, which holds all five tables (817 MB)."""
    return (
        RemoteFile(
            "https://zenodo.org/records/1161203/files/data.tar.gz",
            "downloads/density-estimation-data.tar.gz",
            "md5:9b9c9b0375315ad270eba4ce80c093ab",
            tuple((member, member) for member in members),
        ),
    )


def _idx(base: str, folder: str, sums: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(f"{base}/{name}", f"{folder}/{name}", f"md5:{md5}") for name, md5 in sums.items())


_ZENODO = "https://zenodo.org/records/1161203"
_CIFAR = tuple(f"{part}.bin" for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"))

DATASETS: dict[str, Dataset] = {
    entry.name: entry
    for entry in (
        Dataset(
            name="circle",
            kind="synthetic",
            description="von Mises density on the unit circle in the plane",
            files=(),
            shape=(2,),
            rows=(10_000, 1_000, 5_000),
            licence="none needed: drawn from a seed",
            source="https://arxiv.org/abs/2106.01413",
        ),
        Dataset(
            name="power",
            kind="table",
            description="electric power of a household, by the minute",
            files=_benchmark("power/data.npy"),
            shape=(6,),
            rows=(1_659_917, 184_435, 204_928),
            licence="CC BY 4.0 (UCI, Individual Household Electric Power Consumption)",
            source=_ZENODO,
        ),
        Dataset(
            name="gas",
            kind="table",
            description="gas sensors in mixtures of ethylene and carbon monoxide",
            files=_benchmark("gas/ethylene_CO.pickle"),
            shape=(8,),
            rows=(852_174, 94_685, 105_206),
            licence="CC BY 4.0 (UCI, Gas Sensor Array under Dynamic Gas Mixtures)",
            source=_ZENODO,
        ),
        Dataset(
            name="hepmass",
            kind="table",
            description="simulated particle collisions, signal of mass 1000",
            files=_benchmark("hepmass/1000_train.csv", "hepmass/1000_test.csv"),
            shape=(21,),
            rows=(315_123, 35_013, 174_987),
            licence="CC BY 4.0 (UCI, HEPMASS)",
            source=_ZENODO,
        ),
        Dataset(
            name="miniboone",
            kind="table",
            description="neutrino events of the MiniBooNE experiment",
            files=_benchmark("miniboone/data.npy"),
            shape=(43,),
            rows=(29_556, 3_284, 3_648),
            licence="CC BY 4.0 (UCI, MiniBooNE particle identification)",
            source=_ZENODO,
        ),
        Dataset(
            name="bsds300",
            kind="table",
            description="8×8 patches of natural images, one pixel left out",
            files=_benchmark("BSDS300/BSDS300.hdf5"),
            shape=(63,),
            rows=(1_000_000, 50_000, 250_000),
            licence="for research (Berkeley Segmentation Dataset)",
            source=_ZENODO,
        ),
        Dataset(
            name="mnist",
            kind="image",
            description="handwritten digits",
            files=_idx(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "mnist",
                {
                    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
                },
            ),
            shape=(1, 28, 28),
            rows=(60_000, 0, 10_000),
            licence="CC BY-SA 3.0 (LeCun and Cortes)",
            source="http://yann.lecun.com/exdb/mnist/",
        ),
        Dataset(
            name="fashion-mnist",
            kind="image",
            description="pictures of clothes, in the format of MNIST",
            files=_idx(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "fashion-mnist",
                {
                    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
                },
            ),
            shape=(1, 28, 28),
            rows=(60_000, 0, 10_000),
            licence="MIT (Zalando)",
            source="https://github.com/zalandoresearch/fashion-mnist",
        ),
        Dataset(
            name="cifar10",
            kind="image",
            description="small photographs of ten classes",
            files=(
                RemoteFile(
                    # the binary edition: the one for Python is a pickle
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "downloads/cifar-10-binary.tar.gz",
                    "md5:c32a1d4ab5d03f1284b67883e8d87530",
                    tuple((f"cifar-10-batches-bin/{name}", f"cifar10/{name}") for name in _CIFAR),
                ),
            ),
            shape=(3, 32, 32),
            rows=(50_000, 0, 10_000),
            licence="not stated (Krizhevsky, 2009)",
            source="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Dataset(
            name="svhn",
            kind="image",
            description="street-view house numbers",
            files=(
                RemoteFile(
                    "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
                    "svhn/train_32x32.mat",
                    "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
                ),
                RemoteFile(
                    "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                    "svhn/test_32x32.mat",
                    "md5:eb5a983be6a315427106f1b164d9cef3",
                ),
            ),
            shape=(3, 32, 32),
            rows=(73_257, 0, 26_032),
            licence="for non-commercial use (Netzer et al., 2011)",
            source="http://ufldl.stanford.edu/housenumbers/",
        ),
    )
}

__all__ = ["DATASETS", "Dataset", "RemoteFile", "dataset"]
