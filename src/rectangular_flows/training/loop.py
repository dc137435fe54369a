"""The training loop; it reads top to bottom."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.rows import Rows, mix, shuffled, split, take
from ..errors import NonFiniteError, NumericalError
from ..manifold import RectangularFlow
from ..storage.files import fingerprint
from ..storage.models import save_model
from .average import Average
from .checkpoint import load_checkpoint, save_checkpoint
from .config import TrainingConfig
from .distributed import World
from .evaluation import Metric, Values, evaluate, metrics_for
from .folder import RunFolder, read_history
from .memory import rows_within
from .objective import Objective, Part, Terms
from .run import Epoch, Progress, Run
from .schedule import annealing, dual_step, learning_rate, likelihood_weight
from .setup import choose_device, make_optimiser, seed_everything
from .signals import Interrupted, StopSignals
from .weights import tail_weights

_PASSES: dict[str, tuple[Part, ...]] = {"ml": ("all",), "two-step": ("likelihood", "reconstruction")}
_LATENT_PASSES: tuple[Part, ...] = ("likelihood",)
_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_START_ROWS = 40_000
_DONE = "all epochs done"


def fit(
    flow: RectangularFlow,
    data: Rows,
    config: TrainingConfig | None = None,
    *,
    validation: Rows | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    metrics: Mapping[str, Metric] | None = None,
    on_step: Callable[[Run], None] | None = None,
    on_epoch: Callable[[Run], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Run:
    """Train a flow in place; it ends with the weights that were best on the validation rows.

    Every random draw is a function of ``config.seed`` and of the step, so that a run that was stopped and resumed gives
    the same weights, bit by bit, as one that was not (on the same machine). The global generator is left alone.

    Args:
        flow: the model; initialise it from data first if it has layers that want that (``flow.initialise(data)``).
        data: rows, (N, *data_shape), a tensor, a NumPy array (which may be memory-mapped) or an
            :class:`~rectangular_flows.data.ImageRows`.
        config: the settings.
        validation: rows for choosing the best weights and for stopping early; a tenth of the data, held out by seed,
            unless given.
        out: folder for configuration, history, model and checkpoints. With one, Ctrl-C and SIGTERM save and stop.
        resume: go on from the checkpoint in ``out``.
        overwrite: replace a run that is in ``out``.
        metrics: more to compute at each validation, name → function of the flow and the validation rows.
        on_step: called with the run after every step.
        on_epoch: called with the run after every validation; ``run.history[-1]`` is the new line.
        settings: more for ``config.toml`` (what made the model and the data).
        facts: more for ``model.json``, such as column names.

    Raises:
        NonFiniteError: the loss or its gradient became NaN or infinite; the flow is left with its best weights so far.
        Interrupted: a signal came; the state is in ``out``.

    Example:
        >>> from rectangular_flows import RectangularFlow, flows
        >>> from rectangular_flows.data import von_mises_circle
        >>> flow = RectangularFlow(flows.RealNVP(2, layers=2), flows.Identity(1))
        >>> run = fit(flow, von_mises_circle(200, seed=0), TrainingConfig(epochs=2, batch_size=50))
        >>> [line.epoch for line in run.history]
        [1, 2]
    """
    config = config or TrainingConfig()
    chosen = metrics_for(config, metrics)
    world = World(choose_device(config.device))
    devices = [world.device] if world.device.type == "cuda" else []
    with world.open(), torch.random.fork_rng(devices):
        flow.to(world.device, None if config.dtype is None else getattr(torch, config.dtype)).train()
        dtype = flow.dtype
        train, rest = split(data, validation, flow.data_shape, config.seed)
        config = config.for_rows(len(train))
        held_out = take(rest, slice(config.validation_rows), world.device, dtype)
        loop = _Loop(flow, train, held_out, config, world, chosen, None if out is None else Path(out), facts or {})
        loop.open({**config.settings(), **(settings or {})}, resume, overwrite)
        run = loop.run_to_the_end(on_step, on_epoch)
        del loop
    return run


class _Loop:
    """One run: what it is made of, and the loop over epochs, passes and steps."""

    def __init__(
        self,
        flow: RectangularFlow,
        train: Rows,
        held_out: Tensor,
        config: TrainingConfig,
        world: World,
        metrics: Mapping[str, Metric],
        out: Path | None,
        facts: Mapping[str, Any],
    ):
        self.flow, self.train, self.held_out = flow, train, held_out
        self.config, self.world, self.metrics, self.facts = config, world, metrics, facts
        weights = tail_weights(flow, train, held_out, config.tail_weight, config.seed)
        self.objective = Objective(flow, config.volume, config.beta, config.volume_fraction, weights)
        self.module = world.wrap(self.objective)
        self.parameters = [p for p in flow.parameters() if p.requires_grad]
        self.latent_trains = any(p.requires_grad for p in flow.latent.parameters())
        self.optimiser = make_optimiser(self.parameters, config)
        self.average = Average(flow, config.ema)
        passes = _PASSES[config.method]
        self.epoch_rows = min(len(train), config.epoch_rows or len(train))
        self.batches = math.ceil(self.epoch_rows / config.batch_size)
        self.steps_per_epoch = self.batches * len(passes)
        self.annealed = math.ceil(annealing(config, self.steps_per_epoch)[1])
        first = take(train, slice(8), held_out.device, held_out.dtype)
        self.rows_at_once = rows_within(self.objective, first, config.memory, passes[-1])
        self.run = Run(flow, config, folder=out)
        self.folder = None if out is None else RunFolder(out)
        self.progress = self.run.progress = Progress(config.beta, steps=self._steps(None))
        self.started = self.saved = time.perf_counter()

    def open(self, settings: Mapping[str, Any], resume: bool, overwrite: bool) -> None:
        """Begin the run's folder, or take everything from it and go on."""
        if self.folder is None:
            if resume:
                raise ValueError("resume=True needs out=…, the folder to go on from")
            return
        hashes = {"train_sha256": fingerprint(self.train), "validation_sha256": fingerprint(self.held_out)}
        if not resume:
            if self.world.first:
                self.folder.create(settings, {"train_rows": len(self.train), **hashes}, overwrite)
            return
        self.folder.check_resumable(hashes)
        self.progress, self.run.best_weights = load_checkpoint(
            self.folder.checkpoint, self.flow, self.optimiser, self.average
        )
        self.run.progress = self.progress
        self.progress.steps = self._steps(self.progress.latent_from)
        if self.progress.epoch < self._last_epoch and self.progress.finished == _DONE:
            self.progress.finished = ""  # more epochs than before were asked for
        self._go_on_with_latent()
        self.run.history = [line for line in read_history(self.folder.path) if line.epoch <= self.progress.epoch]
        self.started -= self.progress.seconds
        if self.world.first:
            self.folder.keep_history(self.run.history)
            if not self.progress.finished:
                self.folder.forget_derived()

    def run_to_the_end(self, on_step: Callable[[Run], None] | None, on_epoch: Callable[[Run], None] | None) -> Run:
        progress, run, config = self.progress, self.run, self.config
        # with more than one process all must stop at the same step, so that none gives up its own
        alone = self.world.size == 1
        with StopSignals(enabled=self.folder is not None) as signals:
            while not progress.finished:
                while progress.turn < len(self._passes):
                    order = shuffled(len(self.train), config.seed, progress.epoch, progress.turn)
                    batches = order[: self.epoch_rows].split(config.batch_size)
                    while progress.batch < self.batches:
                        done = False
                        if not self.world.any(signals.requested):
                            with signals.giving_up(alone):
                                found = self._gradient(batches[progress.batch])
                                done = True
                        if not done:
                            self._stop(signals)
                        if found is not None:
                            self._step(*found)
                        progress.batch, progress.step = progress.batch + 1, progress.step + 1
                        if on_step is not None and self.world.first:
                            on_step(run)
                    progress.turn, progress.batch = progress.turn + 1, 0

                epoch = progress.epoch + 1
                if epoch % config.evaluate_every == 0 or epoch == self._last_epoch:
                    values = None
                    stop = self.world.any(signals.requested)
                    with self.average.in_place():
                        with signals.giving_up(alone):
                            values = None if stop else evaluate(self.flow, self.held_out, config, self.metrics)
                        if values is not None:
                            self._judge(epoch, values)
                    if values is None:
                        self._stop(signals)
                    if on_epoch is not None and self.world.first:
                        on_epoch(run)
                progress.epoch, progress.turn = epoch, 0
                if epoch == self._last_epoch:
                    progress.finished = progress.finished or _DONE
                self._go_on_with_latent()
                if progress.finished or time.perf_counter() - self.saved > _SECONDS_BETWEEN_CHECKPOINTS:
                    self._save()

        if run.best_weights:
            self.flow.load_state_dict(run.best_weights)
        else:  # nothing was ever judged: what would have been
            self.average.keep()
        run.seconds = time.perf_counter() - self.started
        self.flow.eval()
        return run

    # --- the phases: f̃ and h together, then h alone

    @property
    def _passes(self) -> tuple[Part, ...]:
        return _PASSES[self.config.method] if self.progress.latent_from is None else _LATENT_PASSES

    @property
    def _last_epoch(self) -> int:
        before = self.progress.latent_from
        return self.config.whole_epochs if before is None else before + self.config.latent_epochs

    def _steps(self, latent_from: int | None) -> int:
        before = self.config.whole_epochs if latent_from is None else latent_from
        return self.steps_per_epoch * before + self.batches * self.config.latent_epochs * self.latent_trains

    def _go_on_with_latent(self) -> None:
        """After the last epoch of f̃ and h together, or after stopping early: h alone, on the best weights so far."""
        progress = self.progress
        wanted = self.config.latent_epochs and self.latent_trains
        if not (progress.finished and wanted and progress.latent_from is None):
            return
        if self.run.best_weights:
            self.flow.load_state_dict(self.run.best_weights)
        else:  # nothing was ever judged: what would have been
            self.average.keep()
        if self.config.restart_latent:
            self._start_latent()
            progress.best = math.inf  # of another h
        self.average.restart()
        self.optimiser = make_optimiser(self.parameters, self.config)  # without the momentum of other weights
        progress.latent_from, progress.finished, progress.steps = progress.epoch, "", self._steps(progress.epoch)

    def _start_latent(self) -> None:
        """Let h start from the coordinates that f̃ gives now; a function of f̃, so that doing it twice changes nothing."""
        rows = take(self.train, shuffled(len(self.train), self.config.seed)[:_START_ROWS], self.held_out.device)
        with torch.no_grad():
            parts = rows.to(self.held_out.dtype).split(self.flow.rows_at_once())
            self.flow.latent.initialise(torch.cat([self.flow.encode(part) for part in parts]))
        self.average.restart()
        self.progress.latent_started = True

    # --- a step

    @property
    def _now(self) -> float:
        passed = self.progress.turn == len(self._passes)  # validating: what the last step had
        return self.progress.epoch + (self.batches - 1 if passed else self.progress.batch) / self.batches

    @property
    def _weight(self) -> float:
        alone = self.progress.latent_from is not None
        return 1.0 if alone else likelihood_weight(self.config, self._now, self.steps_per_epoch)

    @property
    def _rate(self) -> float:
        return learning_rate(self.config, self._now, self.progress.latent_from)

    def _gradient(self, batch: Tensor) -> tuple[Terms, Tensor] | None:
        """The gradient of a batch, in parts that fit the memory; its terms and the gradient's norm. None: no step."""
        part, weight = self._passes[self.progress.turn], self._weight
        if part == "likelihood" and (weight == 0 or not self.latent_trains):
            return None
        if self.config.start_latent and weight > 0 and not self.progress.latent_started:
            self._start_latent()
        for parameter in self.parameters:
            parameter.grad = None
        self.objective.beta = self.progress.beta
        seed_everything(mix(self.config.seed, self.progress.step, self.world.rank), self.world.device)
        x = take(self.train, self.world.share(batch), self.held_out.device, self.held_out.dtype)
        sums = torch.zeros(3, dtype=x.dtype, device=x.device)
        chunks = x.split(self.rows_at_once)
        try:
            for i, chunk in enumerate(chunks):
                with self.world.synchronised(self.module, last=i == len(chunks) - 1):
                    terms = self.module(chunk, weight, part)
                    share = len(chunk) / len(x)
                    (terms.loss * (share * self.world.correction(batch))).backward()
                parts = (terms.loss, terms.negative_log_likelihood, terms.reconstruction)
                sums += share * torch.stack([value.detach() for value in parts])
            norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
            if not bool(torch.isfinite(sums[0]) & torch.isfinite(norm)):
                raise NonFiniteError(f"the loss is {float(sums[0]):.3g} and its gradient's norm {float(norm):.3g}.")
        except NumericalError as error:
            raise self._failure(error) from error
        return Terms(*sums), norm

    def _step(self, terms: Terms, norm: Tensor) -> None:
        progress, config = self.progress, self.config
        if config.clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, config.clip, norm)
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate
        self.optimiser.step()
        self.average.update(progress.step)
        loss, error = float(terms.loss), float(terms.reconstruction)
        progress.add(loss=loss, error=error, norm=float(norm))
        if not math.isnan(error):  # a pass that knows no reconstruction
            progress.beta = self.world.agree(dual_step(config, progress.beta, error))

    def _judge(self, epoch: int, values: Values) -> None:
        """A line of the history; the best weights if these are better; whether to stop."""
        progress, run, config = self.progress, self.run, self.config
        line = Epoch(
            epoch,
            progress.step,
            values.objective,
            values.negative_log_likelihood,
            values.reconstruction,
            train_loss=progress.mean("loss"),
            train_reconstruction=progress.mean("error"),
            weight=self._weight,
            beta=progress.beta,
            learning_rate=self._rate,
            gradient_norm=progress.mean("norm"),
            seconds=time.perf_counter() - self.started,
            metrics=values.metrics,
        )
        judged = self.world.agree(line.value(config.monitor))
        since = self.annealed if progress.latent_from is None else progress.latent_from
        if epoch >= since:  # before the end of the annealing nothing is comparable, and nothing counts
            if judged < progress.best:  # never true of NaN
                progress.best, progress.best_epoch = judged, epoch
                run.best_weights = copy.deepcopy(self.flow.state_dict())
            waited = epoch - max(progress.best_epoch, since)
            if config.patience is not None and waited >= config.patience:
                progress.finished = f"no better {config.monitor} for {waited} epochs"
        progress.sums = {}
        run.history.append(line)
        if self.folder is not None and self.world.first:
            self.folder.append(line, first=len(run.history) == 1)

    # --- keeping

    def _save(self) -> None:
        self.progress.seconds = time.perf_counter() - self.started
        if self.folder is not None and self.world.first:
            args = self.flow, self.optimiser, self.average, self.progress, self.run.best_weights
            save_checkpoint(self.folder.checkpoint, *args)
            self._save_model()
        self.saved = time.perf_counter()

    def _save_model(self) -> None:
        """The best weights so far, or those there are."""
        if self.folder is not None and self.world.first:
            model = copy.deepcopy(self.flow)
            if self.run.best_weights:
                model.load_state_dict(self.run.best_weights)
            save_model(model, self.folder.path, **self.facts)

    def _stop(self, signals: StopSignals) -> None:
        self._save()
        where = f"epoch {self.progress.epoch + 1} of {self._last_epoch}, step {self.progress.step}"
        how = f"rnf fit --resume {self.run.folder}"
        raise Interrupted(f"stopped in {where}; everything is saved. Go on with: {how}", signals.number or 2)

    def _failure(self, error: NumericalError) -> NonFiniteError:
        """After a numerical failure: the best weights so far, kept, and advice."""
        which = "the weights from before that step, which are finite"
        if self.run.best_weights:
            self.flow.load_state_dict(self.run.best_weights)
            which = f"its best weights again (epoch {self.progress.best_epoch})"
        self._save_model()
        return NonFiniteError(
            f"training stopped in epoch {self.progress.epoch + 1}, step {self.progress.step + 1}: {error} The flow has "
            f"{which}. Try a lower learning_rate, clip (say 5), warm_up, a bounded log-scale (scale='tanh'), or "
            "dtype='float64'."
        )
