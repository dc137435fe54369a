"""Conjugate gradients that stop at random, against those that do not, on a trained flow: variance, bias and cost.

``RNF_DATA=FOLDER python -m benchmarks.roulette`` trains a flow on MINIBOONE's validation rows (43 columns), then takes the
gradient of the log-volume of one batch many times with each solver, one probe a row. Printed for each: products with JᵀJ,
milliseconds of one core a gradient, its variance over draws against that of the direct solver, and the bias: the distance of
the mean gradient from the exact one, beyond what chance explains, in norms of the exact gradient. With ``--stretch 100`` the
columns are stretched by factors up to 100 after training, so that JᵀJ is badly conditioned.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from torch import Tensor

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.atlas import one_chart
from rectangular_flows.data.download import data_root
from rectangular_flows.runs.build import build_flow
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.training import fit
from rectangular_flows.volume import CG, PCG, Direct, Exact, RouletteCG, Solver, Stochastic

from .kept import markdown

SOLVERS: dict[str, Solver] = {
    "direct": Direct(),
    "cg, tol 1e-5": CG(),
    "pcg, tol 1e-5": PCG(),
    "cg, 5 iterations": CG(tol=0.0, max_iter=5),
    "roulette, least 5, keep 0.8": RouletteCG(least=5, keep=0.8),
    "roulette, least 5, keep 0.5": RouletteCG(least=5, keep=0.5),
    "roulette, least 2, keep 0.8": RouletteCG(least=2, keep=0.8),
}


def trained(rows: Tensor, dim: int, epochs: int, stretch: float) -> RectangularFlow:
    """A flow of the default kind, and a last layer that stretches its columns."""
    given = {"latent_dim": dim, "epochs": epochs, "latent": "mixture", "scatter": False, "time": None}
    settings = FitSettings.from_flat(given, read_preset("table"))
    flow = one_chart(build_flow(settings.model, rows, 0, start_latent=not settings.training.start_latent))
    fit(flow, rows, settings.training)
    last = flows.Standardise(torch.zeros(rows.shape[1]), torch.logspace(0, float(np.log10(stretch)), rows.shape[1]))
    return RectangularFlow(flow.ambient, flow.latent, [*flow.outer, last], pad=flow.pad)


def gradient(flow: RectangularFlow, value: Tensor) -> Tensor:
    """Of all weights of f̃, as one vector."""
    parameters = [p for p in flow.ambient.parameters() if p.requires_grad]
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None]).double()


def iterations(flow: RectangularFlow, z: Tensor, solver: Solver, draws: int) -> float:
    """Mean products with JᵀJ of a whole batch."""
    from rectangular_flows.flows.injection import linearize_through
    from rectangular_flows.volume import draw_probes
    from rectangular_flows.volume.bundle import core_and_tail

    if isinstance(solver, Direct):
        return 0.0
    core, _ = core_and_tail(flow, z)
    counts = []
    with torch.no_grad():
        x, tangent_map = linearize_through(core, z)
        for _ in range(draws):
            solution = solver(core, z, x, tangent_map, draw_probes(z, 1, "orthonormal"))[1]
            counts.append(0.0 if solution is None else float(solution.iterations.max()))
    return float(np.mean(counts))


def main() -> None:
    """Train, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latent-dim", type=int, default=21)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--stretch", type=float, default=1.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    rows = torch.from_numpy(np.load(data_root() / "miniboone" / "val.npy")).float()
    flow = trained(rows, arguments.latent_dim, arguments.epochs, arguments.stretch)
    with torch.no_grad():
        last = flow.unit_layers()[-1]
        z = flow.encode(last(rows[torch.randperm(len(rows))[: arguments.batch]]))
        values = flow.singular_values(z[:50])
    exact, plain = gradient(flow, Exact()(flow, z)[1].mean()), 0.0
    print(f"median condition number of J: {float((values[:, 0] / values[:, -1]).median()):.3g}", flush=True)
    table = []
    for name, solver in SOLVERS.items():
        method, start = Stochastic(1, "orthonormal", solver), time.process_time()
        found = torch.stack([gradient(flow, method(flow, z)[1].mean()) for _ in range(arguments.draws)])
        spent = 1000 * (time.process_time() - start) / arguments.draws
        added, off = float(found.var(dim=0).sum()), float((found.mean(dim=0) - exact).square().sum())
        plain = plain or added  # of the first, which is direct
        bias = max(off - added / arguments.draws, 0.0) ** 0.5 / float(exact.norm())
        chance = (added / arguments.draws) ** 0.5 / float(exact.norm())
        products = iterations(flow, z, solver, 20)
        table.append([name, f"{products:.1f}", f"{spent:.0f}", f"{added / plain:.3g}", f"{bias:.2g} ± {chance:.1g}"])
    print(markdown(("solver", "products", "ms", "variance / direct", "bias"), table))


if __name__ == "__main__":
    main()
