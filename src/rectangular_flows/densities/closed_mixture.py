r"""A mixture on a latent space that closes up: each component a product over lines, circles and spheres.

.. math:: p(z) = \sum_k w_k \prod_i q_{ki}(z_i), \qquad
          q(\theta) = \frac{e^{\kappa\cos(\theta - \mu)}}{2\pi I_0(\kappa)}, \quad
          q(u) = \frac{\kappa\, e^{\kappa\,\mu\cdot u}}{4\pi\sinh\kappa},

von Mises on a circle, von Mises–Fisher on a sphere (per unit of area), Gaussian on a line.

Reference: Banerjee et al., Clustering on the unit hypersphere using von Mises–Fisher distributions, JMLR 6 (2005).
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from ..errors import RankDeficientError, check_finite, warn
from ..flows.spaces import EMBEDDED, Embedding, Space, sphere_frame, unit
from .base import Density, draw_normal
from .mixture import FewerComponentsWarning, most_components

_ROUNDS, _ROWS = 100, 10_000
_LEAST_KAPPA = 1e-3
_MOST_DOUBLINGS = 5  # of the number of components, from one
_PATIENCE = 0.05  # nats below the best at which more components are still tried


class ClosedMixture(Density):
    """A mixture of K products of von Mises, von Mises–Fisher and Gaussian densities.

    It starts as one density, uniform on circles and spheres and standard Gaussian on lines, and takes its values from data
    by ``initialise``, which runs the EM algorithm.

    Args:
        space: its name, such as "circle", "line*torus:2" or "sphere".
        components: K.
        seed: of the start of EM.
        floor: where EM ends, the least variance of a component: on circles and spheres in squared radians, on lines in
            units of the variance of the coordinate.

    Cost: O(K d) a row.

    Example:
        >>> h = ClosedMixture("circle", components=3)
        >>> round(h.log_prob(torch.zeros(1, 1)).exp().item() * 2 * math.pi, 2), h.sample(5).shape
        (1.0, torch.Size([5, 1]))
    """

    def __init__(self, space: str, components: int = 8, seed: int = 0, floor: float = 1e-3):
        super().__init__()
        if components != int(components) or components < 1:
            raise ValueError(f"expected a whole number of components, at least one; got {components}")
        self._space = Space.of(space)
        self.features, self.components, self.seed, self.floor = self._space.coordinates, components, seed, floor
        self.embed = Embedding(str(self._space))
        kinds = self._space.factors
        self.logits = nn.Parameter(torch.zeros(components))
        centres = torch.zeros(components, self.embed.out_shape[0])
        for name, place in self._space.places(EMBEDDED):
            if name != "line":
                centres[:, place.start] = 1
        self.centres = nn.Parameter(centres)  # of every factor; on circles and spheres only their directions count
        start = torch.tensor([0.0 if name == "line" else math.log(_LEAST_KAPPA) for name in kinds])
        self.log_precision = nn.Parameter(start.repeat(components, 1))  # 2 log(1/σ) of a line, log κ of the others

    @property
    def space(self) -> Space:
        """The space that it is a density on."""
        return self._space

    def _parts(self, v: Tensor) -> Tensor:
        """Log-density of every component times its weight, of embedded points, (B, n) → (B, K)."""
        total = self.logits.log_softmax(dim=0).expand(len(v), -1)
        for i, (name, place) in enumerate(self._space.places(EMBEDDED)):
            centre, log_kappa = self.centres[:, place], self.log_precision[:, i]
            total = total - 0.5 * log_kappa.exp() * squares(name, v[:, place], centre) + HEIGHTS[name](log_kappa)
        return total

    def log_prob(self, z: Tensor) -> Tensor:
        return torch.logsumexp(self._parts(self.embed(z)), dim=1)

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        device = self.logits.device if generator is None else generator.device
        odds = self.logits.softmax(dim=0).to(device)
        chosen = torch.multinomial(odds, max(count, 1), replacement=True, generator=generator)[:count]
        chosen = chosen.to(self.logits.device)
        parts = []
        for i, (name, place) in enumerate(self._space.places(EMBEDDED)):
            centre, log_kappa = self.centres[chosen, place].double(), self.log_precision[chosen, i].double()
            parts.append(SAMPLERS[name](centre, log_kappa, generator))
        z = torch.cat(parts, dim=1).to(self.centres.dtype)
        return z if "sphere" not in self._space.factors else self.embed.inverse(self.embed(z))

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Components by the EM algorithm, in float64, of at most 10,000 points; fewer where points are few, with a warning.

        Raises:
            RankDeficientError: a coordinate on a line is constant.
        """
        rows = z.detach().cpu().double()
        check_finite(rows, "The coordinates that a mixture starts from", "Check the data, or lower the learning rate.")
        v = self.embed(rows[:_ROWS])
        lines = [place.start for name, place in self._space.places(EMBEDDED) if name == "line"]
        mean, scale = v.new_zeros(v.shape[1]), v.new_ones(v.shape[1])
        for i in lines:
            mean[i], scale[i] = v[:, i].mean(), v[:, i].std(correction=0)
        if bool((scale[lines] <= torch.finfo(z.dtype).eps * mean[lines].abs()).any()):
            raise RankDeficientError(
                f"a coordinate of the {len(rows)} points that a mixture starts from is constant. Give more points, or a "
                "smaller latent space."
            )
        v = (v - mean) / scale
        known = min(self.components, most_components(len(v), self._space.dimension))
        if known < self.components:
            warn(
                FewerComponentsWarning,
                f"{len(v)} points on {self._space} are too few for a mixture of {self.components}: it starts as one of "
                f"{known}. Ask for fewer components (--latent-components {known}) to avoid this warning.",
            )
        fitted = ClosedMixture(str(self._space), known, self.seed, self.floor).double()
        fitted._run_em(v)
        same = torch.arange(self.components) % known  # which of them each component is
        precision = fitted.log_precision[same]
        for i, (name, place) in enumerate(self._space.places(EMBEDDED)):
            if name == "line":
                precision[:, i] -= 2 * scale[place.start].log()
        self.logits.copy_(fitted.logits[same] - same.bincount()[same].log())
        self.centres.copy_(mean + scale * fitted.centres[same])
        self.log_precision.copy_(precision)

    @classmethod
    @torch.no_grad()
    def fitted(
        cls, space: str, rows: Tensor, held_out: Tensor, seed: int = 0, like: ClosedMixture | None = None
    ) -> ClosedMixture:
        """The mixture of the rows whose number of components is best for rows held out.

        Args:
            space: its name.
            rows: (N, coordinates), of which at most 10,000 are used.
            held_out: (M, coordinates), M ≥ 1.
            seed: of the EM algorithm.
            like: a mixture whose number of components is taken as it is.
        """
        rows, held_out = rows.detach().cpu().double(), held_out.detach().cpu().double()
        most = most_components(len(rows), Space.of(space).dimension)
        counts = [2**i for i in range(_MOST_DOUBLINGS + 1) if 2**i <= most]
        best, best_score = None, -math.inf
        for count in counts if like is None else [like.components]:
            density = cls(space, count, seed).double()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FewerComponentsWarning)
                density.initialise(rows)
            score = float(density.log_prob(held_out).mean())
            if score < best_score - _PATIENCE:
                break
            if score > best_score:
                best, best_score = density, score
        if best is None:
            raise RankDeficientError("no mixture has a finite likelihood on the rows that were held out")
        return best

    def _run_em(self, v: Tensor) -> None:
        """From far points, one a component; lines in units of their deviation."""
        generator = torch.Generator().manual_seed(self.seed)
        shares = _apart(v, self.components, generator)
        before = -math.inf
        for _ in range(_ROUNDS):
            self._maximise(v, shares)
            parts = self._parts(v)
            value = float(torch.logsumexp(parts, dim=1).mean())
            if value < before + 1e-5:
                break
            before, shares = value, parts.softmax(dim=1)

    def _maximise(self, v: Tensor, shares: Tensor) -> None:
        count = shares.sum(dim=0) + 1e-9
        self.logits.copy_(count.log())
        mean = (shares.mT @ v) / count[:, None]
        for i, (name, place) in enumerate(self._space.places(EMBEDDED)):
            part = mean[:, place]
            if name == "line":
                variance = (shares.mT @ v[:, place].square()) / count[:, None] - part.square()
                self.centres[:, place], self.log_precision[:, i] = part, -variance[:, 0].clamp_min(self.floor).log()
                continue
            length = part.norm(dim=1).clamp(1e-9, 1 - 1e-9)
            size = place.stop - place.start
            kappa = length * (size - length.square()) / (1 - length.square())
            self.centres[:, place] = part / part.norm(dim=1, keepdim=True).clamp_min(1e-30)
            self.log_precision[:, i] = kappa.clamp(_LEAST_KAPPA, 1 / self.floor).log()


def _apart(v: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Hard shares, (B, K), by the nearest of K points that are drawn with odds by their squared distance to the others."""
    chosen = [int(torch.randint(len(v), (), generator=generator))]
    nearest = (v - v[chosen[0]]).square().sum(dim=1)
    for _ in range(count - 1):
        odds = nearest if float(nearest.sum()) > 0 else torch.ones_like(nearest)
        chosen.append(int(torch.multinomial(odds, 1, generator=generator)))
        nearest = nearest.minimum((v - v[chosen[-1]]).square().sum(dim=1))
    return nn.functional.one_hot(torch.cdist(v, v[chosen]).argmin(dim=1), count).to(v)


# --- of a component: its log-density is −κ/2 times the squared distance from its centre, plus its height


def squares(name: str, v: Tensor, centre: Tensor) -> Tensor:
    """Squared distances on a factor, (B, n), (K, n) → (B, K): −2 (cos − 1), which loses no digits where κ is large."""
    return (v[:, None] - (centre if name == "line" else unit(centre))).square().sum(-1)


def _line(log_precision: Tensor) -> Tensor:
    return 0.5 * (log_precision - math.log(2 * math.pi))


def _circle(log_kappa: Tensor) -> Tensor:
    return -math.log(2 * math.pi) - torch.special.i0e(log_kappa.exp()).log()


def _sphere(log_kappa: Tensor) -> Tensor:
    return log_kappa - math.log(2 * math.pi) - (-torch.expm1(-2 * log_kappa.exp())).log()


HEIGHTS = {"line": _line, "circle": _circle, "sphere": _sphere}


# --- draws, (B, n), (B,) → (B, coordinates), float64


def _draw_line(centre: Tensor, log_precision: Tensor, generator: torch.Generator | None) -> Tensor:
    return centre + (-log_precision / 2).exp()[:, None] * draw_normal(tuple(centre.shape), centre, generator)


def _uniform(count: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = like.device if generator is None else generator.device
    return torch.rand(count, dtype=torch.float64, device=device, generator=generator).to(like.device)


def _draw_circle(centre: Tensor, log_kappa: Tensor, generator: torch.Generator | None) -> Tensor:
    """Best & Fisher, Efficient simulation of the von Mises distribution, Applied Statistics 28 (1979)."""
    kappa = log_kappa.exp()
    tau = 1 + (1 + 4 * kappa.square()).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
    r = torch.where(kappa < 1e-4, 1 / kappa + kappa, (1 + rho.square()) / (2 * rho))
    angle, left = torch.zeros_like(kappa), torch.ones_like(kappa, dtype=torch.bool)
    while bool(left.any()):
        at, count = left.nonzero().flatten(), int(left.sum())
        first, second, third = (_uniform(count, kappa, generator) for _ in range(3))
        c = (math.pi * first).cos()
        f = (1 + r[at] * c) / (r[at] + c)
        a = kappa[at] * (r[at] - f)
        taken = (a * (2 - a) > second) | ((a / second).log() + 1 - a >= 0)
        angle[at[taken]] = ((third - 0.5).sign() * f.clamp(-1, 1).acos())[taken]
        left[at[taken]] = False
    return _wrapped(angle + torch.atan2(centre[:, 1], centre[:, 0]))[:, None]


def _wrapped(angle: Tensor) -> Tensor:
    return torch.atan2(angle.sin(), angle.cos())


def _draw_sphere(centre: Tensor, log_kappa: Tensor, generator: torch.Generator | None) -> Tensor:
    """The height along the centre has a closed form; the direction around it is uniform."""
    kappa, first, second = log_kappa.exp(), *(_uniform(len(centre), centre, generator) for _ in range(2))
    drop = (-torch.log1p((1 - first) * torch.expm1(-2 * kappa)) / kappa).clamp(0, 2)  # 1 − height
    ring, angle = (drop * (2 - drop)).sqrt(), 2 * math.pi * second
    around = torch.stack((ring * angle.cos(), ring * angle.sin()), dim=1)
    return (1 - drop)[:, None] * unit(centre) + (around[:, None] @ sphere_frame(centre)).squeeze(1)


SAMPLERS = {"line": _draw_line, "circle": _draw_circle, "sphere": _draw_sphere}
