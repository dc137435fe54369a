"""Every setting of a training run, in one place. Imports no torch, so that the command line can list them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..volume import Exact, Stochastic

Method = Literal["ml", "two-step"]
Optimiser = Literal["adam", "adamw"]
Schedule = Literal["constant", "cosine", "one-cycle"]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class VolumeSettings:
    """The volume method as plain values: what a configuration file and the command line say.

    Args:
        volume: "exact" or "stochastic" gradient of the log-volume.
        probes: random tangents for each row (stochastic).
        distribution: of the probes: "orthonormal", "gaussian" (as published) or "rademacher" (stochastic).
        solver: "direct", "cg" (as published) or "pcg" (stochastic).
        tolerance: relative residual at which cg and pcg stop (stochastic).
        max_iterations: most iterations of cg and pcg; twice the latent dimension unless given (stochastic).
        bundle_size: tangents carried at a time, to bound memory (exact).
        codimension: whether to use the identity for small D − d: "auto", "always" or "never" (exact).
    """

    volume: Literal["exact", "stochastic"] = "exact"
    probes: int = 1
    distribution: Literal["orthonormal", "gaussian", "rademacher"] = "orthonormal"
    solver: Literal["direct", "cg", "pcg"] = "direct"
    tolerance: float = 1e-5
    max_iterations: int | None = None
    bundle_size: int | None = None
    codimension: Literal["auto", "always", "never"] = "auto"

    def build(self) -> Exact | Stochastic:
        """The volume method itself."""
        from ..volume import Exact, Stochastic

        if self.volume == "exact":
            return Exact(self.bundle_size, self.codimension)
        if self.volume == "stochastic":
            limits = () if self.solver == "direct" else (self.tolerance, self.max_iterations)
            return Stochastic(self.probes, self.distribution, self.solver, *limits)
        raise ValueError(f"expected volume among exact, stochastic; got {self.volume!r}")

    @classmethod
    def of(cls, volume: Any) -> VolumeSettings:
        """The settings of a volume method; a class of your own is recorded by its name."""
        from ..volume import Exact, Stochastic
        from ..volume.solvers import solver_name

        if isinstance(volume, Exact):
            return cls("exact", bundle_size=volume.bundle_size, codimension=volume.codimension)
        if isinstance(volume, Stochastic):
            limits = {"tolerance": "tol", "max_iterations": "max_iter"}
            given = {name: getattr(volume.solver, own) for name, own in limits.items() if hasattr(volume.solver, own)}
            return cls("stochastic", volume.probes, volume.distribution, solver_name(volume.solver), **given)  # type: ignore[arg-type]
        return cls(type(volume).__name__)  # type: ignore[arg-type]


_AUTO_STEPS, _AUTO_EPOCHS, _AUTO_ROWS = 3_000, 500, 50_000


def _exact() -> Exact:
    from ..volume import Exact

    return Exact()


@dataclass(frozen=True)
class TrainingConfig:
    """How a rectangular flow is trained.

    The loss of a batch is −w·log p(x̂) + β‖x − x̂‖², in the model's units (standardised data, if the flow standardises).

    Args:
        method: "ml" maximises likelihood and minimises reconstruction error together; "two-step" alternates whole
            passes: one on the likelihood, which trains h with z held fixed, one on the reconstruction, which trains f̃.
        volume: how the log-volume is differentiated (only for "ml"): an Exact or Stochastic of rectangular_flows.volume.
        beta: weight of the squared reconstruction error, summed over dimensions; where it starts if target_error is set.
        target_error: mean squared reconstruction error to meet; beta then adapts by dual ascent until it is met.
        tail_weight: exponent a of weights |y|^(2a) of rows in the squared reconstruction error, by their distance from the
            centre of the data and 1 on average: above 0, rows far out are reconstructed better (0.5 to 1).
        dual_rate: speed of that adaptation: the largest relative change of beta in a step.
        epochs: passes over the training data (for "two-step" one pass of each kind); "auto": by the number of rows, as many
            as make some 3,000 steps, and 500 at the most.
        latent_epochs: more epochs after those, in which h trains alone on the best f̃ so far; their schedule starts anew.
            Where epochs is "auto", half as many.
        epoch_rows: rows that make an epoch, drawn anew for each, so that a large table is validated more than once a
            pass; none: all of them, or 50,000 at the most where epochs is "auto".
        batch_size: rows a step.
        optimiser: "adam" or "adamw".
        weight_decay: of adamw.
        learning_rate: of the optimiser; the peak where a schedule changes it.
        schedule: "constant", "cosine" (to zero over all epochs) or "one-cycle" (up for 30 % of them, then down).
        warm_up: epochs over which the learning rate rises linearly from zero.
        anneal: (start, end) between which the weight of the likelihood rises linearly from 0 to 1.
        anneal_in: whether these are "epochs" or "steps".
        start_latent: when the annealing starts, let h take from data whatever it starts from (its whitening) once more:
            until then f̃ has moved, and h has not been trained.
        restart_latent: when h starts to train alone, let it take from data whatever it starts from once more (a mixture: the
            EM algorithm on the coordinates of the best f̃). Weights from before that are not judged any more.
        clip: largest norm of the gradient, or None.
        ema: decay of an exponential moving average of the weights, such as 0.999, which is evaluated and kept; or None.
        volume_fraction: share of each batch whose log-volume is computed; unbiased, and cheaper in proportion.
        memory: MiB that a step's graph may take; larger batches are taken in parts whose gradients add up.
        patience: stop after so many epochs without improvement, counted from the end of the annealing; None trains to
            the end. The best weights are kept either way.
        monitor: what improvement is judged by, on the validation rows, lower being better: "objective", "nll",
            "reconstruction", "fid-like", or a metric passed to fit.
        evaluate_every: epochs between validations.
        validation_rows: the most rows a validation uses.
        seed: of the order of the batches and of every random draw.
        dtype: "float32" or "float64"; None keeps the flow's.
        device: "auto" (a GPU if there is one), "cpu", "cuda", …
    """

    method: Method = "ml"
    volume: Exact | Stochastic = field(default_factory=_exact)
    beta: float = 50.0
    target_error: float | None = None
    tail_weight: float = 0.0
    dual_rate: float = 0.02
    epochs: int | Literal["auto"] = 100
    latent_epochs: int = 0
    epoch_rows: int | None = None
    batch_size: int = 500
    optimiser: Optimiser = "adam"
    weight_decay: float = 0.0
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    warm_up: float = 0.0
    anneal: tuple[float, float] = (0.0, 0.0)
    anneal_in: Literal["epochs", "steps"] = "epochs"
    start_latent: bool = False
    restart_latent: bool = False
    clip: float | None = None
    ema: float | None = None
    volume_fraction: float = 1.0
    memory: float = 2048.0
    patience: int | None = None
    monitor: str = "objective"
    evaluate_every: int = 1
    validation_rows: int = 20_000
    seed: int = 0
    dtype: Precision | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        volume: Any = self.volume
        if isinstance(volume, str):  # the spelling of configuration files
            object.__setattr__(self, "volume", VolumeSettings(volume).build())  # type: ignore[arg-type]
        if not callable(self.volume) or isinstance(self.volume, type):
            raise ValueError(
                f"expected volume to be Exact() or Stochastic(…) of rectangular_flows.volume; got {self.volume!r}"
            )
        choices: dict[str, tuple[Any, ...]] = {
            "method": ("ml", "two-step"),
            "optimiser": ("adam", "adamw"),
            "schedule": ("constant", "cosine", "one-cycle"),
            "anneal_in": ("epochs", "steps"),
            "dtype": ("float32", "float64", None),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"expected {name} among {', '.join(map(str, allowed))}; got {getattr(self, name)!r}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"expected a seed from 0 to 2⁶³ − 1; got {self.seed}")
        counts: tuple[str, ...] = ("batch_size", "evaluate_every", "validation_rows")
        positive: tuple[str, ...] = ("beta", "dual_rate", "learning_rate", "memory", *counts)
        optional = ("target_error", "clip", "patience", "epoch_rows")
        if self.epochs != "auto":
            counts = ("epochs", *counts)
            positive = ("epochs", *positive)
        for name in (*positive, *(n for n in optional if getattr(self, n) is not None)):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"expected a positive {name}; got {value}")
        for name in (*counts, "seed", "patience", "epoch_rows", "latent_epochs"):
            value = getattr(self, name)
            if value is not None and value != int(value):
                raise ValueError(f"expected a whole number as {name}; got {value}")
        for name in ("weight_decay", "warm_up", "seed", "latent_epochs", "tail_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"expected {name} ≥ 0; got {getattr(self, name)}")
        if self.weight_decay and self.optimiser != "adamw":
            raise ValueError(f"weight_decay is for optimiser adamw; got {self.weight_decay} with {self.optimiser}")
        if len(self.anneal) != 2 or not 0 <= self.anneal[0] <= self.anneal[1]:
            raise ValueError(f"expected annealing from start to end with 0 ≤ start ≤ end; got {self.anneal}")
        if not 0 < self.volume_fraction <= 1:
            raise ValueError(f"expected 0 < volume_fraction ≤ 1; got {self.volume_fraction}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"expected 0 < ema < 1; got {self.ema}")
        if self.restart_latent and not self.latent_epochs and self.epochs != "auto":
            raise ValueError("restart_latent is for latent_epochs, in which h trains alone; there are none")
        if self.latent_epochs and self.monitor == "reconstruction":
            raise ValueError(
                "monitor='reconstruction' cannot judge latent_epochs, in which only the likelihood changes"
            )
        if self.method == "two-step" and self.target_error is not None:
            raise ValueError("target_error balances two terms that the two-step method never adds; use method='ml'")

    @property
    def whole_epochs(self) -> int:
        """``epochs`` where it is a number, as it is once the rows are known: see :meth:`for_rows`."""
        if isinstance(self.epochs, str):
            raise ValueError("epochs='auto' is decided by the number of rows: config.for_rows(rows)")
        return self.epochs

    def for_rows(self, rows: int) -> TrainingConfig:
        """These settings for so many rows to train on, with what is "auto" decided.

        Example:
            >>> [TrainingConfig(epochs="auto").for_rows(n).epochs for n in (1_000, 20_000, 1_000_000)]
            [500, 75, 30]
        """
        if self.epochs != "auto":
            return self
        epoch_rows = self.epoch_rows or (_AUTO_ROWS if rows > _AUTO_ROWS else None)
        steps = math.ceil(min(rows, epoch_rows or rows) / self.batch_size)
        epochs = min(_AUTO_EPOCHS, math.ceil(_AUTO_STEPS / steps))
        alone = self.latent_epochs or (0 if self.monitor == "reconstruction" else epochs // 2)
        return replace(self, epochs=epochs, epoch_rows=epoch_rows, latent_epochs=alone)

    def settings(self) -> dict[str, Any]:
        """Every setting as a plain value, the volume's beside the others."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["anneal"] = list(self.anneal)
        del plain["volume"]
        return {"method": plain.pop("method"), **asdict(VolumeSettings.of(self.volume)), **plain}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TrainingConfig:
        """The inverse of :meth:`settings`; what is missing has its default.

        Example:
            >>> TrainingConfig.from_settings({"volume": "stochastic", "probes": 3, "epochs": 7}).volume.probes
            3
        """
        settings = dict(settings)
        names = [f.name for f in fields(VolumeSettings)]
        volume = VolumeSettings(**{name: settings.pop(name) for name in names if name in settings})
        if "anneal" in settings:
            settings["anneal"] = tuple(settings["anneal"])
        return cls(volume=volume.build(), **settings)


__all__ = ["TrainingConfig", "VolumeSettings"]
