"""All settings of a run: data, model and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..densities.registry import LATENTS
from ..kinds import Setting, Table, flat, make
from ..training.config import TrainingConfig
from .data import DataSettings
from .model import ModelSettings

_ROOTS = {"data": DataSettings, "model": ModelSettings, "training": TrainingConfig}


@dataclass(frozen=True)
class FitSettings:
    """Data, model and training of one run.

    On the sphere, ``latent_dim`` is 2 unless given, and the columns are not standardised: that would make an ellipsoid of
    the sphere.
    """

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if self.data.sphere:
            dim = 2 if self.model.latent_dim is None else self.model.latent_dim
            object.__setattr__(self, "model", replace(self.model, latent_dim=dim, standardise=False))
        latent = LATENTS.get(self.model.latent.name)
        if latent is not None and latent.starts_from_data and not latent.trains and self.training.method != "two-step":
            raise ValueError(
                f"latent = {latent.name} is for method = two-step, since rows would be likeliest on top of each other; got "
                f"method = {self.training.method}. Add --method two-step, or choose another --latent"
            )

    @classmethod
    def from_flat(cls, values: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> FitSettings:
        """From flat mappings, as configuration files have them; what is missing has its default.

        Args:
            values: settings that must apply.
            base: settings under those, dropped where they do not apply: of a preset, or of a run made before.

        Raises:
            ValueError: a setting is unknown, has an impossible value, or does not apply.

        Example:
            >>> FitSettings.from_flat({"scale": "exp", "bound": 0.1})
            Traceback (most recent call last):
            ValueError: bound is for scale = tanh; this run has scale = exp. Leave it out, or add --scale tanh
        """
        sifted = settings_table().sift({**values, **_latent_for(values, base or {})}, base)
        return cls(**{name: make(root, sifted) for name, root in _ROOTS.items()})

    def flat(self) -> dict[str, Any]:
        """The settings that apply, by name: the inverse of :meth:`from_flat`."""
        return settings_table().sift({}, {**flat(self.data), **flat(self.model), **flat(self.training)})


def _latent_for(values: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The latent density of a space that closes up, where none is given and that of the base is for others."""
    both = {**base, **values}
    space = both.get("latent_space")
    turns = both.get("periodic") not in (None, "none") and settings_table().applies("periodic", both)
    if space in (None, "none") and turns:
        space = "circle"  # for every periodic column
    if "latent" in values or space in (None, "none"):
        return {}
    from ..flows.spaces import Space  # imports torch

    kind = LATENTS.get(base.get("latent", ModelSettings().latent.name))
    return {} if kind is None or kind.fits(Space.of(space)) else {"latent": "auto"}


def settings_table() -> Table:
    """Every setting of every kind; made anew, since kinds of latent densities may have been added."""
    return Table(*_ROOTS.values())


def help_of(setting: Setting) -> str:
    """What a setting means."""
    latents = "; ".join(f'"{kind.name}", {kind.help}' for kind in LATENTS.values())
    return setting.help.replace("{latents}", latents)
