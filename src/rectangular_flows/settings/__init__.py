"""Everything that ``rnf fit`` can be told, as flat dataclasses: a key of a configuration file, or a flag, for each field.

Imports no torch: ``rnf fit --help`` lists the fields, their defaults and what they mean from the docstrings here and in
``training/config.py``.
"""

from __future__ import annotations

import importlib.resources
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from ..spelling import nearest
from ..training.config import TrainingConfig, VolumeSettings

DEFAULT_PRESET = "table"
"""The preset of ``rnf fit`` and of the estimator where none is named."""


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
        validation_fraction: share of the rows that validates.
        test_fraction: share of the rows that is kept for testing.
        radius_noise: standard deviation of the radius, for the data set 'circle'.
        sphere: two columns, latitude and longitude in degrees: points of the unit sphere in R³, never standardised.
        image_size: height and width, or both in one, that the pictures of a folder are brought to.
    """

    data: str | None = None
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    drop_invalid: bool = False
    validation_data: str | None = None
    test_data: str | None = None
    validation_fraction: float = 0.1
    test_fraction: float = 0.1
    radius_noise: float = 0.0
    sphere: bool = False
    image_size: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
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


@dataclass(frozen=True)
class ModelSettings:
    """What the flow is made of.

    Args:
        latent_dim: d, the dimension of the manifold; "auto" estimates it (see rnf dimension).
        ambient: f̃: "realnvp" (tables), "principal" (in the leading principal directions only: images, wide tables) or
            "multiscale" (images, as published).
        standardise: let the model see columns of mean 0 and standard deviation 1; densities stay in the units of the data.
            Tables only.
        pixels: what the model sees of pixels in [0, 1]: "logit" of them, as published, or "plain". Densities and distances
            stay in units of pixels. Images only.
        margin: the λ of logit(λ + (1 − 2λ)x); published: 1e-6 for digits and clothes, 0.05 for photographs.
        directions: D′, principal directions that f̃ "principal" works in; the rest of the data is their mean.
        channels: of the convolutions of f̃ "multiscale".
        blocks: residual blocks of each of its couplings, which are 10.
        pca: start along the leading principal components of the data, by a fixed rotation after f̃ (realnvp).
        pca_tail: exponent a of weights |y|^(2a) of rows in finding these, by their distance from the centre of the data:
            above 0, rows far out count more.
        layers: couplings of f̃ (realnvp, principal).
        hidden: widths of the network of each coupling.
        network: "mlp", or "residual" (two equal widths for each residual block).
        activation: "silu", "tanh" (as published) or "relu".
        scale: of the couplings: "tanh" (bounded), "exp" (as published) or "sigmoid".
        bound: largest log-scale of a coupling with scale "tanh".
        mixing: linear layers between the couplings: "none", "permutation", "lu" or "free".
        mixing_start: "identity" for mixing that cancels out at the start, so that f̃ starts as the identity and, with pca,
            the manifold as the best linear one; "random" for a rotation, and a subspace, at random.
        actnorm: an ActNorm after each coupling, started from the data.
        zero_init: start every coupling as the identity.
        latent: h: "realnvp", "spline" (couplings, after a whitening), "autoregressive" (splines each of whose coordinates
            depends on all before it: a better density in many dimensions, d passes for a sample), "mixture" (of
            Gaussians: for few rows in many dimensions), "affine" (a shift and a scale) or "identity".
        latent_layers: couplings, or splines, of h.
        latent_hidden: widths of their networks.
        latent_components: Gaussians of h "mixture".
        latent_activation: of the couplings of h "realnvp"; none: as activation.
    """

    latent_dim: int | Literal["auto"] | None = None
    ambient: Literal["realnvp", "principal", "multiscale"] = "realnvp"
    standardise: bool = True
    pixels: Literal["logit", "plain"] = "logit"
    margin: float = 0.05
    directions: int = 128
    channels: int = 64
    blocks: int = 8
    pca: bool = True
    pca_tail: float = 0.0
    layers: int = 6
    hidden: tuple[int, ...] = (64, 64)
    network: Literal["mlp", "residual"] = "mlp"
    activation: Literal["silu", "tanh", "relu"] = "silu"
    scale: Literal["tanh", "exp", "sigmoid"] = "tanh"
    bound: float = 2.0
    mixing: Literal["none", "permutation", "lu", "free"] = "none"
    mixing_start: Literal["identity", "random"] = "identity"
    actnorm: bool = False
    zero_init: bool = True
    latent: Literal["realnvp", "spline", "autoregressive", "mixture", "affine", "identity"] = "realnvp"
    latent_layers: int = 4
    latent_hidden: tuple[int, ...] = (32, 32)
    latent_components: int = 8
    latent_activation: Literal["silu", "tanh", "relu"] | None = None

    def __post_init__(self) -> None:
        if not (self.pca_tail >= 0 and isfinite(self.pca_tail)):
            raise ValueError(f"expected pca_tail of at least 0; got {self.pca_tail}")
        for name, hint in typing.get_type_hints(type(self)).items():
            kinds = [part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is Literal]
            choices = [choice for kind in kinds for choice in typing.get_args(kind)]
            value = getattr(self, name)
            if choices and isinstance(value, str) and value not in choices:
                raise ValueError(f"expected {name} among {', '.join(choices)}; got {value!r}")
        for name in ("latent_components", "latent_layers", "directions", "channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1; got {getattr(self, name)}")
        for name in ("hidden", "latent_hidden"):
            if any(width < 1 for width in getattr(self, name)):
                raise ValueError(f"expected widths of at least 1 in {name}; got {list(getattr(self, name))}")
        if self.layers < 0:
            raise ValueError(f"expected layers of at least 0; got {self.layers}")


@dataclass(frozen=True)
class FitSettings:
    """Data, model and training of one run.

    On the sphere, ``latent_dim`` is 2 unless given and ``standardise`` is off whatever was given: it would make an
    ellipsoid of the sphere.
    """

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if self.data.sphere:
            dim = 2 if self.model.latent_dim is None else self.model.latent_dim
            object.__setattr__(self, "model", replace(self.model, latent_dim=dim, standardise=False))
        if self.training.restart_latent and self.model.latent in ("realnvp", "identity"):
            raise ValueError(
                f"restart_latent is for a latent that starts from the data (mixture, spline, …); got {self.model.latent}"
            )

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> FitSettings:
        """From one flat mapping, as a configuration file has it; what is missing has its default.

        Raises:
            ValueError: a key is not known, or a value not possible.
        """
        check_keys(values, "settings")

        def of(kind: type) -> dict[str, Any]:
            return {f.name: _tupled(values[f.name]) for f in fields(kind) if f.name in values}

        training = TrainingConfig.from_settings({**of(TrainingConfig), **of(VolumeSettings)})
        return cls(DataSettings(**of(DataSettings)), ModelSettings(**of(ModelSettings)), training)

    def flat(self) -> dict[str, Any]:
        """The inverse of :meth:`from_flat`."""
        return {**vars(self.data), **vars(self.model), **self.training.settings()}


@dataclass(frozen=True)
class Setting:
    """One field: its name, type, default and what it means."""

    name: str
    group: str
    hint: Any
    default: Any
    help: str


_GROUPS: dict[str, type] = {
    "data": DataSettings,
    "model": ModelSettings,
    "volume": VolumeSettings,
    "training": TrainingConfig,
}


def all_settings() -> dict[str, Setting]:
    """Every field of every group, by name."""
    found: dict[str, Setting] = {}
    for group, kind in _GROUPS.items():
        texts = _argument_texts(kind)
        hints = typing.get_type_hints(kind, localns={"Exact": object, "Stochastic": object})
        for f in fields(kind):
            if kind is TrainingConfig and f.name == "volume":
                continue  # its own settings stand for it
            found[f.name] = Setting(f.name, group, hints[f.name], f.default, texts.get(f.name, ""))
    return found


def check_keys(keys: Iterable[str], where: str) -> None:
    """Refuse unknown keys, naming the nearest known one."""
    known = all_settings()
    for key in keys:
        if key not in known:
            raise ValueError(f"{where}: unknown setting {key!r}.{nearest(key, known)}")


def read_toml(path: str | Path) -> dict[str, Any]:
    """A configuration file: flat keys; the table 'record' of a run's own config.toml is passed over."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no configuration file {path}")
    return _parse(path.read_text(encoding="utf-8"), str(path))


def preset_names() -> list[str]:
    """The presets that come with the package."""
    folder = importlib.resources.files(__name__) / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset."""
    names = preset_names()
    if name not in names:
        raise ValueError(f"no preset {name!r}.{nearest(name, names)} There are: {', '.join(names)}")
    file = importlib.resources.files(__name__) / "presets" / f"{name}.toml"
    return _parse(file.read_text(encoding="utf-8"), f"preset {name}")


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where} is not valid TOML: {error}") from error
    values.pop("record", None)
    check_keys(values, where)
    known = all_settings()
    return {key: None if value == "none" and is_optional(known[key].hint) else value for key, value in values.items()}


def is_optional(hint: Any) -> bool:
    """Whether a setting of that type may be none."""
    return types.NoneType in typing.get_args(hint)


def _argument_texts(kind: type) -> dict[str, str]:
    """What the 'Args' section of a docstring says of each argument."""
    section = inspect.getdoc(kind).partition("Args:\n")[2]  # type: ignore[union-attr]
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            name, texts[start[1]] = start[1], start[2]
        elif line.startswith(" " * 8) and name:
            texts[name] += " " + line.strip()
        elif line.strip():
            break
    return texts


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


__all__ = [
    "DEFAULT_PRESET",
    "DataSettings",
    "FitSettings",
    "ModelSettings",
    "Setting",
    "all_settings",
    "check_keys",
    "is_optional",
    "preset_names",
    "read_preset",
    "read_toml",
]
