"""The steps that are compared: ours, the algorithm as published, and what a user might take instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from zuko.flows.coupling import RealNVP

from ...manifold import Manifold, RectangularFlow
from ...training.compiled import Compiled
from ...training.config import TrainingConfig
from ...training.distributed import World
from ...training.memory import backward_in_parts, in_parts, rows_within
from ...training.objective import Objective, Part, Place
from ...training.variance import adam_weights, measure, moved, sizes_of
from ...volume import Auto, Exact, Stochastic
from ...volume.auto import Choice
from ..published import published_exact, published_stochastic
from .cases import Case
from .rounds import Step
from .steps import make_products

BETA = 50.0
_WARM_ROWS = 256


def structured(case: Case, rows: int, seed: int = 0) -> Tensor:
    """Rows near a curved manifold of d dimensions, standardised, (rows, D); of an image case its shape."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, case.d, generator=generator)
    mixed = torch.sin(z @ torch.randn(case.d, case.D, generator=generator) / math.sqrt(case.d) * 1.5)
    x = mixed + 0.1 * torch.randn(rows, case.D, generator=generator)
    x = (x - x.mean(dim=0)) / x.std(dim=0)
    x = x.sigmoid() if case.preset and case.image else x  # pixels
    return x.view(rows, *case.image) if case.image else x


class Bench:
    """A flow that was trained a little, its optimiser, a batch, and the choice that ``auto`` makes for them."""

    def __init__(self, case: Case, steps: int | None = None):
        torch.manual_seed(0)
        self.case, self.flow, self.x = case, case.flow(), structured(case, case.batch)
        self.optimiser = torch.optim.Adam(self.flow.parameters(), lr=1e-3, fused=True)
        few = min(_WARM_ROWS, case.batch)
        warm = Objective(self.flow, Exact(), BETA, min(1.0, 8 / few))
        generator = torch.Generator().manual_seed(1)
        for _ in range(case.warm if steps is None else steps):
            rows = self.x[torch.randperm(case.batch, generator=generator)[:few]]
            self._step(warm, [(rows, Place(few))])
        for group in self.optimiser.param_groups:
            group["lr"] = 0.0  # from here on all steps start from the same weights

    def _step(self, objective: Objective | Compiled, parts: Sequence[tuple[Tensor, Place]], part: Part = "all") -> None:
        self.optimiser.zero_grad(set_to_none=True)
        backward_in_parts(objective, parts, 1.0, part, World())
        nn.utils.clip_grad_norm_(self.flow.parameters(), 5.0)
        self.optimiser.step()

    def choice(self, rows: int | None = None) -> Choice:
        """What ``auto`` takes here, of two measurements."""
        objective, auto = Objective(self.flow, Exact(), BETA), Auto()
        weights, generator = adam_weights(self.optimiser, moved(objective)), torch.Generator().manual_seed(0)
        one, two = (measure(objective, x, auto, weights, generator) for x in self.x.chunk(2))
        mean = one._replace(
            gradient=1.0,
            volume=(one.volume / one.gradient + two.volume / two.gradient) / 2,
            probes=(one.probes / one.gradient + two.probes / two.gradient) / 2,
            signs=(one.signs / one.gradient + two.signs / two.gradient) / 2,
        )
        return auto.choose(mean, sizes_of(objective, rows or len(self.x), auto))

    def steps(self, names: list[str]) -> dict[str, Step]:
        """The steps of these names."""
        return {name: self.step(name) for name in names}

    def step(self, name: str) -> Step:
        """One training step: forward, backward, clipping, Adam at rate 0; ours in the parts that training takes."""
        flow, x = self.flow, self.x
        if name == "bare products":
            return make_products(flow, len(x))
        if name == "square zuko flow":
            return _square_step(self.case, x)
        if name == "free-form surrogate":
            return _free_form_step(self.case, flow, x)
        if name == "reconstruction only":
            return self._in_parts(self._objective(Exact()), part="reconstruction")
        if name.startswith("auto"):
            choice = self.choice()
            chosen = self._objective(choice.method(), choice.share)
            return self._in_parts(chosen, Compiled(chosen) if name == "auto, compiled" else None)
        objective = self._objective(_volume(name, min(10, self.case.d)))
        if name.endswith("whole batch") or not isinstance(objective.volume, (Exact, Stochastic)):
            return lambda: self._step(objective, [(x, Place(len(x)))])
        return self._in_parts(objective)

    def _in_parts(self, objective: Objective, call: Compiled | None = None, part: Part = "all") -> Step:
        """A step that takes its batch in parts, as training does."""
        budget = TrainingConfig().memory_on("cpu", sum(p.nbytes for p in self.flow.parameters()))
        volumes = math.ceil(objective.volume_fraction * len(self.x))
        parts = in_parts(
            torch.arange(len(self.x)), rows_within(objective, self.x, budget, part, batch=len(self.x)), volumes
        )
        taken = [(self.x[rows], place) for rows, place in parts]
        return lambda: self._step(call or objective, taken, part)

    def _objective(self, volume: Callable[..., tuple[Tensor, Tensor]], share: float = 1.0) -> Objective:
        return Objective(self.flow, volume, BETA, share)  # type: ignore[arg-type]


def _volume(name: str, most: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """The volume of a step by its name, "K = 4, pcg" or "published, K = min(10, d)", whose number is ``most``."""
    plain = name.removesuffix(", whole batch")
    fixed: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
        "exact": Exact(),
        "published, exact": published_exact,
        "jacfwd and slogdet": naive,
    }
    if plain in fixed:
        return fixed[plain]
    words = plain.removeprefix("published, ").removeprefix("K = ").removesuffix(", pcg")
    probes = most if words == "min(10, d)" else int(words)
    if plain.startswith("published"):
        return partial(published_stochastic, probes=probes)
    return Stochastic(probes, solver="pcg" if plain.endswith("pcg") else "direct")


def naive(flow: Manifold, z: Tensor) -> tuple[Tensor, Tensor]:
    """(f(z), ½ log det JᵀJ) as anybody would write it: jacfwd of the decoder, slogdet of the Gram matrix."""

    def decode(one: Tensor) -> tuple[Tensor, Tensor]:
        x: Tensor = flow.decode(one.unsqueeze(0)).squeeze(0)
        return x.flatten(), x

    J, x = torch.func.vmap(torch.func.jacfwd(decode, has_aux=True))(z)
    return x, 0.5 * torch.linalg.slogdet(J.mT @ J).logabsdet


def _square_step(case: Case, x: Tensor) -> Step:
    """Maximum likelihood of a RealNVP of zuko's on all D columns, with the same networks."""
    flow = RealNVP(case.D, transforms=case.layers, hidden_features=case.hidden)
    optimiser = torch.optim.Adam(flow.parameters(), lr=0.0, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        (-flow().log_prob(x.flatten(1)).mean()).backward()
        optimiser.step()

    return step


def _free_form_step(case: Case, flow: RectangularFlow, x: Tensor) -> Step:
    r"""A free-form injective flow with as many weights: encoder g, decoder f, and one probe v of the biased surrogate.

    .. math:: \beta\|x - f(g(x))\|^2 - \log p(z) - \mathtt{stop\_gradient}(v^\top f'(z))\, g'(x) v
    """
    count = sum(p.numel() for p in flow.ambient.parameters())
    width = max(8, round(math.sqrt(count / 6)))
    encoder, decoder = (_mlp(a, width, b) for a, b in ((case.D, case.d), (case.d, case.D)))
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.0, fused=True)
    flat = x.flatten(1)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        v = torch.nn.functional.normalize(torch.randn_like(flat[:, : case.d]), dim=1) * math.sqrt(case.d)
        leaf = flat.clone().requires_grad_()
        z = encoder(leaf)
        (pulled,) = torch.autograd.grad(z, leaf, v, create_graph=True)  # vᵀ g′(x)
        pushed = torch.func.jvp(decoder, (z.detach(),), (v,))[1]
        x_hat = decoder(z)
        error = (flat - x_hat).square().sum(dim=1)
        surrogate = (pulled * pushed.detach()).sum(dim=1)
        (BETA * error + 0.5 * z.square().sum(dim=1) - surrogate).mean().backward()
        optimiser.step()

    return step


def _mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    sizes = (inputs, width, width, width, width, outputs)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers[:-1])
