"""The training loop; it reads top to bottom."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..atlas import Model
from ..data.rows import Rows, mix, shuffled, take
from ..errors import NonFiniteError, NumericalError, TroubleWarning, warn
from ..volume import Auto
from .atlas import objective_of, settle
from .average import Average
from .budget import seconds_of
from .chooser import VolumeChooser
from .compiled import compiled
from .config import TrainingConfig
from .distributed import PeerError, World
from .evaluation import Metric, Values, evaluate
from .folder import RunFolder
from .memory import RowsAtOnce, backward_in_parts, in_parts
from .objective import Objective, Part, Place, Terms
from .optimisers import make_optimiser, trained
from .run import Progress, Run
from .scatter import column_steps, fit_scatter
from .schedule import Plan, dual_step
from .setup import seed_everything
from .sharing import same_model
from .signals import GivenUp, Interrupted, StopSignals
from .target import keeps_the_manifold, least_beta, set_target
from .weights import tail_weights

T = TypeVar("T")
Watcher = Callable[[Run], None]

_START_ROWS = 40_000
_DONE = "all epochs done"
_MOST_TROUBLES = 3


class TroubleError(Exception):
    """Steps failed numerically once too often."""


class Loop:
    """One run: what it is made of, and the loop over epochs, passes and steps."""

    def __init__(
        self,
        flow: Model,
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
        self.objective = objective_of(flow, config.volume, config.beta, config.volume_fraction, weights)
        self.stepped = compiled(self.objective, config.compile, world)
        self.parameters = trained(flow)
        self.optimiser = make_optimiser(flow, config)
        self.average = Average(flow, config.ema)
        self.plan = Plan(config, len(train), any(p.requires_grad for p in flow.latent_parameters()))
        fixed = None if config.target_error == "auto" else config.target_error
        self.run = Run(flow, config, folder=out, progress=Progress(config.beta, target=fixed))
        self.chooser: VolumeChooser | None = None
        if isinstance(config.volume, Auto) and config.method == "ml" and isinstance(self.objective, Objective):
            rows = min(config.batch_size, len(train))
            self.chooser = VolumeChooser(config.volume, self.objective, rows, config.seed, world)
        self.progress = self.run.progress
        self.progress.steps = self.plan.steps(self.progress)
        if config.scatter:
            self.run.column_steps = column_steps(flow, len(train), self.progress.steps)
        size = sum(p.nbytes for p in self.parameters)
        device = held_out.device.type
        budget, batch = config.memory_on(device, size, len(flow.charts)), config.stretching(device, len(train))
        self.rows_at_once = RowsAtOnce(self.objective, train, held_out, budget, world, batch)
        self.folder = None if out is None else RunFolder(out, writes=world.first)
        self.signals = StopSignals(enabled=self.folder is not None, patient=world.size > 1)
        self.started = self.saved = time.perf_counter()

    def open(self, settings: Mapping[str, Any], resume: bool, overwrite: bool) -> None:
        """Begin the run's folder, or continue from what is in it."""
        if self.folder is None:
            if resume:
                raise ValueError("resume=True needs out=…, the folder of the run")
            return
        if not resume:
            self.folder.create(settings, self.train, self._judged_rows(), overwrite, self.facts)
            return
        rows = self.train, self._judged_rows(), self.facts
        state = self.world.from_first(self.folder.last_state(*rows) if self.world.first else b"")
        progress, best, history = self.folder.restore(state, self.flow, self.optimiser, self.average)
        self.progress, self.run.best_weights, self.run.history = progress, best, history
        self.run.progress = progress
        if self.config.target_error != "auto":  # runs of version 0.1 did not keep it
            progress.target = self.config.target_error
        progress.steps = self.plan.steps(progress)
        if progress.epoch < self.plan.last_epoch(progress) and progress.finished == _DONE:
            progress.finished = ""  # more epochs than before were asked for
        if self.plan.latent_is_next(progress):
            self._begin_latent_alone()
        if self.chooser is not None:
            self.chooser.restore(progress)
        self.started -= progress.seconds
        self.folder.resume(self.run.history, finished=bool(progress.finished))

    def _judged_rows(self) -> Tensor:
        """The validation rows in the type of the flow, as the run's folder knows them."""
        return self.held_out.to(self.flow.dtype)

    def close(self) -> None:
        """Let other processes write to the folder."""
        if self.folder is not None:
            self.folder.close()

    def run_to_the_end(
        self, on_step: Watcher | None, on_epoch: Watcher | None, on_scatter: Callable[[int, int], None] | None = None
    ) -> Run:
        """Train until the run is finished, or until a signal comes."""
        progress = self.progress
        with self.signals:
            try:
                while not progress.finished:
                    self._epoch(on_step, on_epoch)
                    if progress.finished:
                        self._save()
            except TroubleError:
                progress.finished = (
                    f"numerical trouble {progress.troubles} times, the last in epoch {progress.epoch + 1}"
                )
                warn(TroubleWarning, f"training ended early: {progress.finished}. The flow has {progress.best_weights}")
                self._save()
            except PeerError:
                self._save()  # the step in which another process failed left no trace
                raise
            except GivenUp:
                self._save()
                self.world.wait()  # or torchrun would end process 0 for having lost another
                where = f"epoch {progress.epoch + 1} of {self.plan.last_epoch(progress)}, step {progress.step}"
                how = f"Resume with: rnf fit --resume {self.run.folder}"
                raise Interrupted(f"stopped in {where}; everything is saved. {how}", self.signals.number or 2) from None
        if not self.run.use_best():  # nothing was ever judged: the weights that would have been
            self.average.swap()
        if not self.plan.latent_trains and any(chart.latent.state_dict() for chart in self.flow.charts):
            self._initialise_latent()  # what it takes from data it takes from where the manifold is in the end
        settle(self.flow, self.train, self.held_out, self.config.seed)
        self._fit_scatter(on_scatter)
        self.flow.set_nearest(self.config.nearest)
        if self.folder is not None:
            self.folder.finish(self.run, self.facts)
        self.run.seconds = time.perf_counter() - self.started
        self.flow.eval()
        return self.run

    def _epoch(self, on_step: Watcher | None, on_epoch: Watcher | None) -> None:
        progress, config, plan, first = self.progress, self.config, self.plan, self.world.first
        if config.target_error == "auto" and progress.start is None:
            self._judge_start()
        while progress.turn < len(plan.passes(progress)):
            order = shuffled(len(self.train), config.seed, progress.epoch, progress.turn)
            batches = order[: plan.epoch_rows].split(config.batch_size)
            while progress.batch < plan.batches:
                found = self._unless_stopped(self._gradient, batches[progress.batch])
                if found is not None:
                    self._step(*found)
                progress.batch, progress.step = progress.batch + 1, progress.step + 1
                if on_step is not None and first:
                    on_step(self.run)
                if time.perf_counter() - self.saved >= config.checkpoint_every:
                    self._save()
            progress.turn, progress.batch = progress.turn + 1, 0

        epoch = progress.epoch + 1
        if epoch % config.validates_every == 0 or epoch == plan.last_epoch(progress):
            with self.average.in_place():
                given = self.flow, self.held_out, config, self.metrics, progress.beta, progress.target
                values = self._unless_stopped(evaluate, *given, self.world)
                self._judge(epoch, values)
            if on_epoch is not None and first:
                on_epoch(self.run)
        progress.epoch, progress.turn = epoch, 0
        if epoch == plan.last_epoch(progress):
            progress.finished = progress.finished or _DONE
        if plan.latent_is_next(progress):
            self._begin_latent_alone()

    def _unless_stopped(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of work, which is given up without a trace if a signal came before or comes meanwhile."""
        if self.world.any(self.signals.requested):
            raise GivenUp
        # with more than one process all must stop at the same step, so that none gives up its own
        with self.signals.giving_up(self.world.size == 1):
            return work(*arguments)

    # --- a step

    def seconds_per_step(self) -> float:
        """Measured, without a change to the weights."""
        batch = torch.arange(min(self.config.batch_size, len(self.train)))
        part = self.plan.passes(self.progress)[-1]
        state = torch.random.get_rng_state()
        if self.chooser is not None:
            whole = take(self.train, batch, self.held_out.device, self.held_out.dtype)
            self.chooser.step(self.progress, whole, self.optimiser)
        parts = self._parts(batch, part, 1.0)

        def step() -> None:
            for parameter in self.parameters:
                parameter.grad = None
            backward_in_parts(self.stepped, parts, 1.0, part, self.world)

        spent = seconds_of(step)
        torch.random.set_rng_state(state)
        return self.world.agree(spent)

    def _parts(self, batch: Tensor, kind: Part, weight: float) -> list[tuple[Tensor, Place]]:
        """A batch in parts that fit the memory, the same for any number of processes: the rows of this one in each."""
        world, volumes = self.world, math.ceil(self.objective.volume_fraction * len(batch))
        parts = in_parts(batch, self.rows_at_once(kind, weight, self.progress.rows_at_once), volumes)
        own = [world.share(part) for part, _ in parts]
        x = take(self.train, torch.cat(own), self.held_out.device, self.held_out.dtype)
        places = [replace(place, first=world.rank, step=world.size) for _, place in parts]
        return list(zip(x.split([len(part) for part in own]), places, strict=True))

    def _gradient(self, batch: Tensor) -> tuple[Terms, Tensor] | None:
        """The gradient of a batch, in parts that fit the memory; its terms and the gradient's norm. None: no step."""
        part, weight = self.plan.passes(self.progress)[self.progress.turn], self.plan.weight(self.progress)
        if part == "likelihood" and (weight == 0 or not self.plan.latent_trains):
            return None
        if weight > 0 and self.config.target_error == "auto" and self.progress.target is None:
            set_target(self.progress, self.flow.ambient_dim - self.flow.latent_dim)
        if self.config.start_latent and weight > 0 and not self.progress.latent_started:
            self._start_latent()
        for parameter in self.parameters:
            parameter.grad = None
        self.objective.beta = self.progress.beta
        counts = part == "all" and weight > 0
        try:
            if counts and self.chooser is not None and self.chooser.looks(self.progress):
                whole = take(self.train, batch, self.held_out.device, self.held_out.dtype)  # all processes choose alike
                if self.chooser.step(self.progress, whole, self.optimiser):
                    self.progress.rows_at_once.clear()  # the volume is another one
            parts = self._parts(batch, part, weight)
            seed_everything(mix(self.config.seed, self.progress.step, 0), self.world.device)  # in all processes alike
            terms = backward_in_parts(self.stepped, parts, weight, part, self.world)
            norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
            if not bool(torch.isfinite(terms.loss) & torch.isfinite(norm)):
                raise NonFiniteError(f"the loss is {float(terms.loss):.3g} and its gradient's norm {float(norm):.3g}.")
        except NumericalError as error:
            if not self._recovers():
                raise self._failure(error) from error
            return None
        return terms, norm

    def _recovers(self) -> bool:
        """After numerical trouble: go on from averaged weights at a lower rate; after too much of it, end with the best.

        Only where training adapts by itself: ``target_error = "auto"``, the default of tables. Others are to see the error.
        """
        progress = self.progress
        if self.config.target_error != "auto" or self.world.size > 1 or not self.run.best_weights:
            return False
        progress.troubles += 1
        if progress.troubles > _MOST_TROUBLES:
            raise TroubleError
        self.average.swap()
        self.average.restart()
        self.optimiser = make_optimiser(self.flow, self.config)  # without the momentum of other weights
        return True

    def _step(self, terms: Terms, norm: Tensor) -> None:
        progress, config = self.progress, self.config
        if self.chooser is not None and self.chooser.after_step(progress):
            self.progress.rows_at_once.clear()
        if config.clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, config.clip, norm)
        for group in self.optimiser.param_groups:
            group["lr"] = self.plan.rate(progress)
        self.optimiser.step()
        self.average.update(progress.step)
        loss, error = float(terms.loss), float(terms.reconstruction)
        progress.add(loss=loss, error=error, norm=float(norm))
        if not math.isnan(error):  # of a pass without a reconstruction
            least = least_beta(self.flow, config, progress.target)
            progress.beta = dual_step(config, progress.beta, error, progress.target, least)

    # --- after an epoch

    def _judge(self, epoch: int, values: Values) -> None:
        """A line of the history; the best weights if these are better; whether to stop."""
        progress, run = self.progress, self.run
        seconds = time.perf_counter() - self.started
        progress.least_error = min(progress.least_error, float(values.reconstruction))
        now = self.plan.weight(progress), self.plan.rate(progress), seconds, self.chooser is not None
        line = progress.line(epoch, values, *now)
        judged = line.value(self.config.monitor) if keeps_the_manifold(progress, line.reconstruction) else math.nan
        if progress.judge(judged, epoch, self.plan.judged_from(progress), self.config):
            run.best_weights = copy.deepcopy(self.flow.state_dict())
        run.history.append(line)
        if self.folder is not None:
            self.folder.write_history([line], append=len(run.history) > 1)

    def _begin_latent_alone(self) -> None:
        """After the last epoch of f̃ and h together, or after stopping early: h alone, on the best weights so far."""
        progress = self.progress
        if not self.run.use_best():
            self.average.swap()
        if self.config.restart_latent:
            self._start_latent()
            progress.best = math.inf  # of another h
        self.average.restart()
        self.optimiser = make_optimiser(self.flow, self.config)  # without the momentum of other weights
        progress.latent_from, progress.finished = progress.epoch, ""
        progress.steps = self.plan.steps(progress)

    def _judge_start(self) -> None:
        """Keep the weights at the start: where nothing better comes of training, they stay."""
        if self.config.start_latent and not self.progress.latent_started:
            self._initialise_latent()
        of = self.flow, self.held_out, self.config
        values = self._unless_stopped(evaluate, *of, {}, self.progress.beta, None, self.world)
        nll, error = values.negative_log_likelihood, values.reconstruction
        self.progress.start, self.progress.least_error = (nll, error), error
        self.run.best_weights = copy.deepcopy(self.flow.state_dict())

    def _start_latent(self) -> None:
        """Start h from the coordinates that f̃ gives now; a function of f̃, so that doing it twice changes nothing."""
        self._initialise_latent()
        self.average.restart()
        self.progress.latent_started = True

    def _initialise_latent(self) -> None:
        if self.world.first:
            like, order = self.held_out, shuffled(len(self.train), self.config.seed)
            with torch.no_grad():
                rows = take(self.train, order[:_START_ROWS], like.device).to(like.dtype)
                self.flow.initialise_latent(rows)
        same_model(self.world, self.flow).train()

    # --- keeping

    def _save(self) -> None:
        self.progress.seconds = time.perf_counter() - self.started
        if self.folder is not None:
            self.folder.save(self.run, self.facts, self.optimiser, self.average)
        self.saved = time.perf_counter()

    def _fit_scatter(self, on_scatter: Callable[[int, int], None] | None) -> None:
        """The density of rows around the manifold, which is a function of the flow: resuming a finished run repairs it."""
        if self.config.scatter:
            if self.world.first:
                steps = self.plan.steps(Progress(1.0))
                fit_scatter(self.flow, self.train, self.held_out, self.config.seed, steps, on_scatter)
            same_model(self.world, self.flow).train()

    def _failure(self, error: NumericalError) -> NonFiniteError:
        restored = self.run.use_best()
        if self.folder is not None:
            self.folder.save(self.run, self.facts)
        self.world.wait()  # or torchrun would end process 0 for having lost another
        return self.progress.failure(error, restored)
