"""The training loop; it reads top to bottom."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import NonFiniteError
from ..manifold import RectangularFlow
from ..volume import Exact
from .config import TrainingConfig
from .objective import Objective
from .schedule import learning_rate, likelihood_weight


@dataclass(frozen=True)
class Epoch:
    """One line of the history."""

    epoch: int
    objective: float
    """What the best weights are chosen by, on the validation rows: the full objective with the exact volume and the
    likelihood at full weight; for the two-step method the sum of its two losses, which know no volume."""
    negative_log_likelihood: float
    reconstruction: float
    seconds: float


@dataclass
class Run:
    """What a training run left: the flow with its best weights, and how it got there."""

    flow: RectangularFlow
    config: TrainingConfig
    history: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0


def fit(
    flow: RectangularFlow,
    train: Tensor,
    config: TrainingConfig,
    *,
    validation: Tensor,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Run:
    """Train a flow in place; it ends with the weights that were best on the validation rows.

    Args:
        flow: the model; initialise it from data first if it has layers that want that.
        train: rows, (N, *data_shape), on the flow's device.
        config: the settings.
        validation: rows for choosing the best weights and for stopping early.
        on_epoch: called after every validation.

    Raises:
        NonFiniteError: the loss became NaN or infinite; the flow is left with its best weights so far.
    """
    objective = Objective(flow, config.volume, config.beta)
    exact = Objective(flow, Exact(), config.beta)
    optimiser = torch.optim.Adam(flow.parameters(), lr=config.learning_rate, fused=True)
    shuffle = torch.Generator().manual_seed(config.seed)
    run = Run(flow, config)
    best, best_weights, start = float("inf"), copy.deepcopy(flow.state_dict()), time.perf_counter()

    def step(loss: Tensor, epoch: float) -> None:
        if not bool(torch.isfinite(loss)):
            flow.load_state_dict(best_weights)
            raise NonFiniteError(
                f"the loss became {float(loss):.3g} in epoch {epoch:.2f}; the flow has its best weights again (epoch "
                f"{run.best_epoch}). Lower learning_rate, set clip (say 5), or bound the log-scale (scale='tanh')."
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if config.clip is not None:
            torch.nn.utils.clip_grad_norm_(flow.parameters(), config.clip)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config, epoch)
        optimiser.step()

    for epoch in range(config.epochs):
        passes = [0] if config.method == "ml" else [1, 2]
        for kind in passes:
            rows = torch.randperm(len(train), generator=shuffle).to(train.device).split(config.batch_size)
            for i, batch in enumerate(rows):
                now = epoch + i / len(rows)
                weight = likelihood_weight(config, now)
                if kind == 0:
                    step(objective(train[batch], weight).loss, now)
                elif kind == 1 and weight > 0:
                    step(weight * objective.likelihood_step(train[batch]), now)
                elif kind == 2:
                    step(objective.reconstruction_step(train[batch]), now)

        if (epoch + 1) % config.evaluate_every and epoch + 1 < config.epochs:
            continue
        with torch.no_grad():
            terms = exact(validation)
            loss = terms.loss
            if config.method == "two-step":
                loss = objective.likelihood_step(validation) + config.beta * terms.reconstruction
        line = Epoch(
            epoch + 1,
            float(loss),
            float(terms.negative_log_likelihood),
            float(terms.reconstruction),
            time.perf_counter() - start,
        )
        run.history.append(line)
        if on_epoch is not None:
            on_epoch(line)
        if epoch + 1 < config.anneal[1]:
            continue  # comparable, and counted, from the end of the annealing only
        if line.objective < best:
            best, run.best_epoch, best_weights = line.objective, line.epoch, copy.deepcopy(flow.state_dict())
        elif config.patience is not None and line.epoch - run.best_epoch >= config.patience:
            break

    flow.load_state_dict(best_weights)
    run.seconds = time.perf_counter() - start
    return run


__all__ = ["Epoch", "Run", "fit"]
