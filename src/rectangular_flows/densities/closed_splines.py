r"""Splines on a product of circles and lines: rational-quadratic ones that close up on every circle.

.. math:: \log p(z) = \log p_0(g(z)) + \log|\det \partial g/\partial z|,

with p₀ uniform on circles and standard Gaussian on lines. Each g shifts an angle and sends the circle to itself by a
monotone spline whose slopes agree where it closes, so that the density has no jump; on a line the spline is the identity
beyond ±5. Networks see angles as (cos, sin).

References: Durkan et al., Neural spline flows, arXiv:1906.04032; Rezende et al., Normalizing flows on tori and spheres,
arXiv:2002.02428.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import RankDeficientError, check_finite
from ..flows.networks import MLP
from ..flows.spaces import Space, wrap
from .base import Density, draw_normal

_BOUND = 5.0  # of the box of a spline on a line
_LEAST_WIDTH, _LEAST_SLOPE = 1e-3, 1e-3
_ROWS = 10_000


class ClosedSplines(Density):
    """A flow of rational-quadratic splines on circles and lines.

    It starts uniform on circles and standard Gaussian on lines; ``initialise`` takes from data the mean and deviation of
    lines, and the quantiles of every angle.

    Args:
        space: its name, such as "circle" or "line*torus:2"; without spheres.
        layers: splines one after the other; from the second on, each coordinate's depends on half of the others.
        hidden: widths of the networks.
        bins: of every spline.

    Example:
        >>> h = ClosedSplines("line*circle")
        >>> h.log_prob(torch.zeros(3, 2)).shape, h.sample(5).shape
        (torch.Size([3]), torch.Size([5, 2]))
    """

    def __init__(self, space: str, layers: int = 3, hidden: Sequence[int] = (64, 64), bins: int = 6):
        super().__init__()
        self._space = Space.of(space)
        if "sphere" in self._space.factors:
            raise ValueError(
                f"splines are for circles and lines; got the latent space {self._space}. Use --latent mixture"
            )
        if layers < 1 or bins < 2:
            raise ValueError(f"expected at least one layer and two bins; got {layers} and {bins}")
        self.features, self.bins = self._space.coordinates, bins
        d = self.features
        self.register_buffer("_angles", torch.tensor([name == "circle" for name in self._space.factors]), False)
        self.mean = nn.Parameter(torch.zeros(d))
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.first = nn.Parameter(torch.zeros(d, 3 * bins + 1))
        self.more = nn.ParameterList(nn.Parameter(torch.zeros(d, 3 * bins + 1)) for _ in range((layers - 1) * (d == 1)))
        self._steps = [] if d == 1 else _halves(d, layers - 1)
        self.networks = nn.ModuleList(
            MLP(2 * len(given), len(moved) * (3 * bins + 1), hidden, zero_init=True) for given, moved in self._steps
        )

    @property
    def space(self) -> Space:
        """The space that it is a density on."""
        return self._space

    def log_prob(self, z: Tensor) -> Tensor:
        u, total = self._centred(z)
        angles: Tensor = self._angles  # type: ignore[assignment]
        u, change = _spline(u, self.first, angles)
        total = total + change.sum(-1)
        for parameters in self.more:
            u, change = _spline(u, parameters, angles)
            total = total + change.sum(-1)
        for (given, moved), network in zip(self._steps, self.networks, strict=True):
            parameters = self._conditioned(network, u, given, moved)
            value, change = _spline(u[:, moved], parameters, angles[moved])
            u = u.index_copy(1, torch.tensor(moved, device=u.device), value)
            total = total + change.sum(-1)
        normal = -0.5 * (u.square() + math.log(2 * math.pi))
        return total + torch.where(angles, torch.full_like(u, -math.log(2 * math.pi)), normal).sum(-1)

    def _centred(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Lines in units of their deviation; angles in [−π, π), from their own zero."""
        angles: Tensor = self._angles  # type: ignore[assignment]
        off = z - self.mean
        log_scale = torch.where(angles, 0.0, self.log_scale)
        return torch.where(angles, wrap(off), off * (-log_scale).exp()), -log_scale.sum().expand(len(z))

    def _conditioned(self, network: nn.Module, u: Tensor, given: list[int], moved: list[int]) -> Tensor:
        """Of the splines of some coordinates, from the others as the network sees them, (B, moved, 3·bins + 1)."""
        angles: Tensor = self._angles[given]  # type: ignore[index]
        part = u[:, given]
        seen = torch.cat((torch.where(angles, part.cos(), part), torch.where(angles, part.sin(), 0 * part)), dim=1)
        value: Tensor = network(seen)
        return value.unflatten(1, (len(moved), -1))

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        angles: Tensor = self._angles  # type: ignore[assignment]
        device = self.mean.device if generator is None else generator.device
        uniform = torch.rand((count, self.features), dtype=self.mean.dtype, device=device, generator=generator)
        normal = draw_normal((count, self.features), self.mean, generator)
        u = torch.where(angles, (2 * uniform.to(self.mean.device) - 1) * math.pi, normal)
        for (given, moved), network in reversed(list(zip(self._steps, self.networks, strict=True))):
            parameters = self._conditioned(network, u, given, moved)
            u[:, moved] = _inverse_spline(u[:, moved], parameters, angles[moved])
        for parameters in (*reversed(list(self.more)), self.first):
            u = _inverse_spline(u, parameters, angles)
        return torch.where(angles, wrap(u + self.mean), self.mean + u * self.log_scale.exp())

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Mean and deviation of lines; of angles the mean direction, and knots of the first spline at their quantiles.

        Raises:
            RankDeficientError: a coordinate on a line is constant.
        """
        rows = z[:_ROWS].detach().double()
        check_finite(rows, "The coordinates that splines start from", "Check the data, or lower the learning rate.")
        bins, edges = self.bins, torch.linspace(0, 1, self.bins + 1, dtype=torch.float64, device=rows.device)
        for i, name in enumerate(self._space.factors):
            column = rows[:, i]
            if name == "line":
                deviation = column.std(correction=0)
                if not deviation > torch.finfo(z.dtype).eps * column.abs().max():
                    raise RankDeficientError(
                        f"coordinate {i + 1} of the {len(rows)} points that splines start from is constant. Give more "
                        "points, or a smaller latent space."
                    )
                self.mean[i], self.log_scale[i] = column.mean(), deviation.log()
                continue
            middle = torch.atan2(column.sin().mean(), column.cos().mean())
            self.mean[i] = middle
            inner = torch.quantile(wrap(column - middle), edges[1:-1])
            end = torch.full((1,), math.pi, dtype=torch.float64, device=rows.device)
            # not quite at the quantiles, so that no bin is empty
            knots = 0.9 * torch.cat((-end, inner, end)) + 0.1 * math.pi * (2 * edges - 1)
            widths = knots.diff() / (2 * math.pi)
            slopes = 1 / (bins * widths)
            at_knots = (slopes.log() + slopes.log().roll(1)) / 2  # of each bin's left end; the last closes the circle
            at_knots = at_knots.clamp(math.log(_LEAST_SLOPE) / 2, -math.log(_LEAST_SLOPE) / 2)
            at_knots = at_knots / (1 - at_knots.abs() / -math.log(_LEAST_SLOPE))
            self.first[i] = torch.cat((widths.log(), torch.zeros_like(widths), at_knots, end * 0))


def _halves(d: int, layers: int) -> list[tuple[list[int], list[int]]]:
    """Pairs of (given, moved) coordinates: two steps a layer, split by another bit of their number each time."""
    bits, found = max(1, (d - 1).bit_length()), []
    for layer in range(layers):
        one = [i for i in range(d) if i >> (layer % bits) & 1]
        other = [i for i in range(d) if i not in one]
        found += [(one, other), (other, one)]
    return found


# --- the spline


def _knots(parameters: Tensor, angles: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Places, heights and slopes of the knots, (…, d, bins + 1), and the shift of angles, (…, d)."""
    bins = (parameters.shape[-1] - 1) // 3
    widths, heights, slopes, shift = parameters.split([bins, bins, bins, 1], dim=-1)
    bound = torch.where(angles, math.pi, _BOUND).to(parameters.dtype).unsqueeze(-1)

    def places(raw: Tensor) -> Tensor:
        shares = _LEAST_WIDTH + (1 - _LEAST_WIDTH * bins) * raw.softmax(dim=-1)
        inner = bound * (2 * shares.cumsum(dim=-1)[..., :-1] - 1)
        end = bound.expand(*inner.shape[:-1], 1)
        return torch.cat((-end, inner, end), dim=-1)

    log_slopes = slopes / (1 + slopes.abs() / -math.log(_LEAST_SLOPE))
    first = torch.where(angles.unsqueeze(-1), log_slopes[..., :1], 0.0)  # equal at both ends of a circle; 1 on a line
    slopes = torch.cat((first, log_slopes[..., 1:], first), dim=-1).exp()
    return places(widths), places(heights), slopes, torch.where(angles, shift.squeeze(-1), 0.0)


def _bin(u: Tensor, edges: Tensor, *values: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The values at both knots around u, (…, d) each."""
    at = (u.unsqueeze(-1) >= edges[..., 1:-1]).sum(dim=-1, keepdim=True)
    shape = (*at.shape[:-1], edges.shape[-1])
    spread = [value.expand(shape) for value in values]
    return [(v.gather(-1, at).squeeze(-1), v.gather(-1, at + 1).squeeze(-1)) for v in spread]


def _spline(u: Tensor, parameters: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    """g(u) and log g′(u), (B, d)."""
    xs, ys, slopes, shift = _knots(parameters, angles)
    u = torch.where(angles, wrap(u - shift), u)
    (x0, x1), (y0, y1), (d0, d1) = _bin(u, xs, xs, ys, slopes)
    s = (y1 - y0) / (x1 - x0)
    t = ((u - x0) / (x1 - x0)).clamp(0, 1)
    below = s + (d0 + d1 - 2 * s) * t * (1 - t)
    value = y0 + (y1 - y0) * (s * t.square() + d0 * t * (1 - t)) / below
    slope = s.square() * (d1 * t.square() + 2 * s * t * (1 - t) + d0 * (1 - t).square()) / below.square()
    outside = ~angles & (u.abs() > _BOUND)
    return torch.where(outside, u, value), torch.where(outside, 0.0, slope.log())


def _inverse_spline(v: Tensor, parameters: Tensor, angles: Tensor) -> Tensor:
    """The inverse of g, (B, d)."""
    xs, ys, slopes, shift = _knots(parameters, angles)
    v = torch.where(angles, wrap(v), v)
    (x0, x1), (y0, y1), (d0, d1) = _bin(v, ys, xs, ys, slopes)
    s = (y1 - y0) / (x1 - x0)
    rise = (v - y0).clamp(min=0)
    a = (y1 - y0) * (s - d0) + rise * (d0 + d1 - 2 * s)
    b = (y1 - y0) * d0 - rise * (d0 + d1 - 2 * s)
    c = -s * rise
    t = 2 * c / (-b - (b.square() - 4 * a * c).clamp_min(0).sqrt())
    u = x0 + t.clamp(0, 1) * (x1 - x0)
    return torch.where(angles, wrap(u + shift), torch.where(v.abs() > _BOUND, v, u))
