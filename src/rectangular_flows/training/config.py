"""Every setting of a training run, in one place. Imports no torch, so that the command line can list them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from ..densities.registry import LATENTS
from ..kinds import Chosen, Condition, Get, Table, choice, flat, named, only, when
from .optimisers import OPTIMISERS
from .volumes import VOLUMES, build_volume, describe_volume

if TYPE_CHECKING:
    from ..volume import Auto, Exact, Stochastic

_MOST_FOR_CHARTS = 4  # times the rows of a step: small charts take next to no more time for them
_LONGER_FOR_CHARTS = 1.4  # times the steps, those added with the likelihood, by which charts share the rows out
_AUTO_STEPS, _STEPS_PER_ROOT = (200, 2_400), 8.0  # of epochs = "auto"
_AUTO_ROWS, _VALIDATIONS = 50_000, 30
_CPU_MEMORY, _MOST_MEMORY = 120.0, 2048.0  # MiB of memory = "auto": more would leave the caches anyway
_OF_WEIGHTS = 60.0  # times the weights: each part goes through all of them


def auto_rate(columns: int, most: float = 1e-2) -> float:
    """The learning rate for so many columns: a step of Adam changes a linear layer of D columns by up to D times it."""
    return min(most, 1 / columns)


def _exact() -> Exact:
    from ..volume import Exact

    return Exact()


def _latent(get: Get, trait: Literal["starts_from_data", "trains"]) -> bool:
    kind = LATENTS.get(get("latent"))  # none in Python, where a flow has its latent density already
    return kind is None or getattr(kind, trait)


_ML = when("method", "ml")
_SHARED = Condition(("volume",), lambda get: get("volume") != "auto", text="volume = exact or stochastic")
_TRAINS = Condition(("latent",), lambda get: _latent(get, "trains"), text="a latent density with weights")
_STARTS = Condition(("latent",), lambda get: _latent(get, "starts_from_data"), text="a latent that starts from data")
_RESTARTS = Condition(
    ("latent", "latent_epochs"),
    lambda get: _latent(get, "starts_from_data") and bool(get("latent_epochs") or get("epochs") == "auto"),
    text="latent_epochs of a latent that starts from data",
)


@dataclass(frozen=True)
class TrainingConfig:
    """How a rectangular flow is trained.

    The loss of a batch is −w·log p(x̂) + β‖x − x̂‖², in the model's units (standardised data, if the flow standardises).
    ``volume`` may also be an Exact(…), Stochastic(…) or Auto(…) of rectangular_flows.volume.

    Args:
        method: "ml" maximises the likelihood and minimises the reconstruction error together; "two-step" alternates whole
            passes: one on the likelihood, which trains the latent density with the coordinates held fixed, and one on the
            reconstruction, which trains the manifold.
        volume: gradient of the log-volume: "exact", "stochastic", or "auto", which measures the variance of the gradient and
            takes the cheapest of both, on as few rows of each batch, that adds next to nothing to it.
        beta: weight of the squared reconstruction error, summed over dimensions; with target_error, its first value.
        target_error: mean squared reconstruction error to meet; beta adapts by dual ascent until it is met. "auto" takes
            little more than what the manifold reaches on the validation rows before the likelihood counts (see anneal), and
            no more than at the start, so that the likelihood cannot buy density with distance.
        dual_rate: how fast beta adapts to target_error: its largest relative change in a step.
        tail_weight: exponent a of the weight |y|^(2a) of a row in the reconstruction error, by its distance from the
            centre of the data and 1 on average. Above 0 (say 0.5 to 1), rows far out are reconstructed better.
        epochs: passes over the training data (for "two-step", one pass of each kind); "auto" chooses by the number of
            rows: from 200 steps for few rows to 2,400 for many; of an atlas 1.4 times as many, those added with the
            likelihood.
        time: seconds that the fit may take, if epochs is "auto": epochs are then planned from the measured time of a step,
            and recorded, so that resuming or repeating the run with its config.toml gives the same weights.
        latent_epochs: further epochs in which the latent density trains alone on the best manifold so far, with a schedule
            of their own. If epochs is "auto", half as many.
        restart_latent: before latent_epochs, start the latent density from the data again (a mixture: by the EM algorithm
            on the coordinates of the best manifold). Earlier weights are then no longer candidates for the best.
        epoch_rows: rows in an epoch, drawn anew each time, so that a large table is validated more than once per pass; none:
            all of them, or at most 50,000 if epochs is "auto".
        batch_size: rows in a step; of an atlas, if epochs is "auto", so many for each chart, up to four times.
        optimiser: "adam", "adamw", or "muon", which is Adam but for the matrices between hidden layers: their steps
            are made orthogonal, and fewer of them are needed (:mod:`rectangular_flows.muon`).
        weight_decay: weight decay of the optimiser.
        learning_rate: learning rate of the optimiser; its peak, if a schedule changes it. "auto": 0.01, and one over the
            number of columns where there are more than a hundred, whose linear layers a larger one would break.
        schedule: "constant", "cosine" (to zero over all epochs) or "one-cycle" (up for 30 % of them, then down).
        warm_up: epochs over which the learning rate rises linearly from zero.
        anneal: when the weight of the likelihood starts to rise linearly from 0, and when it reaches 1.
        anneal_in: what anneal counts: "epochs", "steps", or the "share" of all epochs.
        start_latent: when the annealing starts, start the latent density from the data again (its whitening), because the
            manifold has moved by then.
        clip: largest norm of the gradient; none: no limit.
        ema: decay of an exponential moving average of the weights, such as 0.999, which is then evaluated and kept.
        volume_fraction: share of each batch whose log-volume is computed; unbiased, and cheaper in proportion.
        compile: train by torch.compile, which takes half a minute or more first: for long trainings of small networks.
            Where it cannot follow (conjugate gradients, several charts or processes), training says so and goes on without.
        memory: MiB that a step's graph may take; larger batches are taken in parts whose gradients add up. "auto": on a CPU
            120 for each chart, or 60 times the weights, below which more parts take more time; 2,048 on a GPU.
        patience: stop after this many epochs without improvement, counted from the end of the annealing; none: train to the
            end; "auto": a fifth of all epochs. The best weights are kept either way.
        monitor: which number on the validation rows judges improvement, lower being better: "objective", "nll",
            "reconstruction", "fid-like", or a metric passed to fit.
        evaluate_every: epochs between validations; "auto": about 30 validations in all.
        validation_rows: the most rows a validation uses.
        scatter: after training, fit the density of rows around the manifold, for log-densities in all columns, samples
            with their scatter, and the outlier score.
        nearest: steps by which the encoder moves to the nearest point of the manifold after training (Gauss–Newton, in the
            model's units); 0: none, as in the paper.
        seed: seed of the order of the batches and of every random draw.
        dtype: "float32" or "float64"; none: that of the flow.
        device: "auto" (a GPU if there is one), "cpu", "cuda", …
        checkpoint_every: seconds between checkpoints, also within an epoch. 0 saves one after every step, inf only when the
            run stops or ends.
    """

    method: Literal["ml", "two-step"] = "ml"
    volume: Auto | Exact | Stochastic = choice(VOLUMES, "exact", _ML, default_factory=_exact, describe=describe_volume)
    beta: float = 50.0
    target_error: float | Literal["auto"] | None = only(None, _ML)
    dual_rate: float = only(0.02, when("target_error"))
    tail_weight: float = 0.0
    epochs: int | Literal["auto"] = 100
    time: float | None = None
    latent_epochs: int = only(0, _TRAINS)
    restart_latent: bool = only(False, _RESTARTS)
    epoch_rows: int | None = None
    batch_size: int = 500
    optimiser: str = named("adam", OPTIMISERS)
    weight_decay: float = only(0.0, when("optimiser", "adamw"))
    learning_rate: float | Literal["auto"] = 1e-3
    schedule: Literal["constant", "cosine", "one-cycle"] = "constant"
    warm_up: float = 0.0
    anneal: tuple[float, float] = (0.0, 0.0)
    anneal_in: Literal["epochs", "steps", "share"] = only("epochs", when("anneal"))
    start_latent: bool = only(False, _STARTS)
    clip: float | None = None
    ema: float | None = None
    volume_fraction: float = only(1.0, _SHARED)
    compile: bool = False
    memory: float | Literal["auto"] = "auto"
    patience: int | Literal["auto"] | None = None
    monitor: str = "objective"
    evaluate_every: int | Literal["auto"] = 1
    validation_rows: int = 20_000
    scatter: bool = True
    nearest: int = 0
    seed: int = 0
    dtype: Literal["float32", "float64"] | None = None
    device: str = "auto"
    checkpoint_every: float = 30.0

    def __post_init__(self) -> None:
        volume: Any = self.volume
        if isinstance(volume, str):
            volume = Chosen(volume, VOLUMES[_table().convert("volume", volume)]())
        if isinstance(volume, Chosen):
            object.__setattr__(self, "volume", build_volume(volume))
        if not callable(self.volume) or isinstance(self.volume, type):
            raise ValueError(
                f"expected volume to be Auto(), Exact() or Stochastic(…) of rectangular_flows.volume; got {self.volume!r}"
            )
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {"volume": describe_volume(self.volume).name}
        for f in fields(self):
            if f.name != "volume":
                _table().convert(f.name, values[f.name])
            if values[f.name] != f.metadata.get("default", f.default):
                _table().check(f.name, values)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"expected a seed from 0 to 2⁶³ − 1; got {self.seed}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value not in (None, "auto") and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"expected a positive {name}; got {value}")
        for name in ("weight_decay", "warm_up", "latent_epochs", "tail_weight", "nearest"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"expected {name} ≥ 0; got {getattr(self, name)}")
        if not self.checkpoint_every >= 0:  # may be infinite: never
            raise ValueError(f"expected checkpoint_every ≥ 0; got {self.checkpoint_every}")
        if self.compile and getattr(self.volume, "tangent_dtype", None) is not None:
            raise ValueError(
                "compile and tangent_dtype do not go together: the compiler does not see the lower precision"
            )
        if self.tail_weight > 10:  # it would leave the row that is farthest out alone, where nothing overflows
            raise ValueError(f"expected tail_weight of at most 10; got {self.tail_weight}")
        if not 0 <= self.anneal[0] <= self.anneal[1] < math.inf:
            raise ValueError(f"expected annealing from start to end with 0 ≤ start ≤ end; got {self.anneal}")
        if not 0 < self.volume_fraction <= 1:
            raise ValueError(f"expected 0 < volume_fraction ≤ 1; got {self.volume_fraction}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"expected 0 < ema < 1; got {self.ema}")
        if self.latent_epochs and self.monitor == "reconstruction":
            raise ValueError(
                "monitor='reconstruction' cannot judge latent_epochs, in which only the likelihood changes"
            )

    @property
    def whole_epochs(self) -> int:
        """``epochs`` where it is a number, as it is once the rows are known: see :meth:`for_rows`."""
        if isinstance(self.epochs, str):
            raise ValueError("epochs='auto' is decided by the number of rows: config.for_rows(rows)")
        return self.epochs

    @property
    def peak_rate(self) -> float:
        """``learning_rate`` where it is a number, as it is once the columns are known."""
        if isinstance(self.learning_rate, str):
            raise ValueError("learning_rate='auto' is decided by the number of columns: config.for_rows(rows, columns)")
        return self.learning_rate

    @property
    def validates_every(self) -> int:
        """``evaluate_every`` where it is a number, as it is once the rows are known."""
        return 1 if isinstance(self.evaluate_every, str) else self.evaluate_every

    @property
    def waits(self) -> int | None:
        """``patience`` where it is a number, as it is once the rows are known."""
        return None if isinstance(self.patience, str) else self.patience

    def memory_on(self, device: str, weights: int = 0, charts: int = 1) -> float:
        """``memory`` as a number, on a kind of device, for a flow with so many bytes of weights."""
        if not isinstance(self.memory, str):
            return self.memory
        least = max(charts * _CPU_MEMORY, _OF_WEIGHTS * weights / 2**20)
        return min(least, _MOST_MEMORY) if device == "cpu" else _MOST_MEMORY

    def stretching(self, device: str, rows: int) -> int:
        """The batch for which that memory may be exceeded, of so many rows; 0: it is a limit."""
        return min(self.batch_size, rows) if isinstance(self.memory, str) and device == "cpu" else 0

    def for_rows(self, rows: int, columns: int = 1, charts: int = 1) -> TrainingConfig:
        """These settings for so many rows to train on, columns and charts, with what is "auto" decided.

        Example:
            >>> [TrainingConfig(learning_rate="auto").for_rows(1_000, n).learning_rate for n in (10, 500)]
            [0.01, 0.002]
            >>> [TrainingConfig(epochs="auto").for_rows(n).epochs for n in (1_000, 20_000, 1_000_000)]
            [127, 29, 24]
            >>> many = [TrainingConfig(epochs="auto").for_rows(20_000, charts=n) for n in (1, 2, 6)]
            >>> [(config.batch_size, config.epochs) for config in many]
            [(500, 29), (1000, 80), (2000, 159)]
        """
        planned = self
        if self.epochs == "auto":
            epoch_rows = self.epoch_rows or (_AUTO_ROWS if rows > _AUTO_ROWS else None)
            batch_size = self.batch_size * min(charts, _MOST_FOR_CHARTS)  # which share them: each trains on its own
            steps = math.ceil(min(rows, epoch_rows or rows) / batch_size)
            longer = _LONGER_FOR_CHARTS if charts > 1 else 1.0
            epochs = math.ceil(longer * self._auto_steps(rows) / steps)
            alone = self.latent_epochs or (0 if self.monitor == "reconstruction" else epochs // 3)
            anneal = self.anneal if self.anneal_in != "share" else (self.anneal[0] / longer, self.anneal[1] / longer)
            planned = replace(self, epochs=epochs, latent_epochs=alone, anneal=anneal)
            planned = replace(planned, epoch_rows=epoch_rows, batch_size=batch_size)
        every = max(1, planned.whole_epochs // _VALIDATIONS) if self.evaluate_every == "auto" else self.evaluate_every
        patience = max(1, planned.whole_epochs // 5) if self.patience == "auto" else self.patience
        rate = auto_rate(columns) if self.learning_rate == "auto" else self.learning_rate
        return replace(planned, evaluate_every=every, patience=patience, learning_rate=rate)

    def _auto_steps(self, rows: int) -> int:
        """More for more rows: as the square root of their number, within bounds."""
        least, most = _AUTO_STEPS
        return round(min(max(_STEPS_PER_ROOT * math.sqrt(rows), least), most))

    def settings(self) -> dict[str, Any]:
        """Every setting that applies as a plain value, those of the volume beside the others."""
        values = flat(self)
        return {name: value for name, value in values.items() if _table().applies(name, values)}


_POSITIVE = (
    *("epochs", "batch_size", "evaluate_every", "validation_rows", "beta", "dual_rate", "learning_rate", "memory"),
    *("target_error", "clip", "patience", "epoch_rows", "time"),
)


@cache
def _table() -> Table:
    return Table(TrainingConfig)
