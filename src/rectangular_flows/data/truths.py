r"""Manifolds with known densities: where their points are, how likely, and the uniform numbers that they stand for.

A truth has coordinates θ, each with a known distribution function :math:`F_i`, independent of the others, and a place x(θ)
for them. With J = ∂x/∂θ its log-density per unit of length or area is :math:`\sum_i \log F_i'(\theta_i) - \tfrac12\log\det
J^\top J`, and the numbers :math:`F_i(\theta_i)`, its probability integral transforms, are uniform on (0, 1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.stats

from ._files import Array
from .datasets import Dataset, Splits

stats: Any = scipy.stats  # whose distributions carry no types


class Truth(ABC):
    """A manifold in R^D with coordinates of known, independent distributions.

    Attributes:
        coordinates: their names.
        text: the truth in a few words.
    """

    coordinates: ClassVar[tuple[str, ...]]
    text: ClassVar[str]

    @property
    def latent_dim(self) -> int:
        """The dimension of the manifold."""
        return len(self.coordinates)

    @abstractmethod
    def draw(self, count: int, random: np.random.Generator) -> Array:
        """Coordinates, (count, d)."""

    @abstractmethod
    def place(self, theta: Array) -> Array:
        """The points with these coordinates, (N, d) → (N, D)."""

    @abstractmethod
    def find(self, x: Array) -> Array:
        """The coordinates of the points of the manifold nearest to x, (N, D) → (N, d)."""

    @abstractmethod
    def log_density(self, x: Array) -> Array:
        """Per unit of length or area, at the points nearest to x, (N, D) → (N,)."""

    @abstractmethod
    def uniforms(self, x: Array) -> Array:
        """Probability integral transforms of the points nearest to x, (N, D) → (N, d)."""

    def distance(self, x: Array) -> Array:
        """From x to the manifold, (N, D) → (N,)."""
        found: Array = np.linalg.norm(x - self.place(self.find(x)), axis=1)
        return found


class Circle(Truth):
    """The unit circle, with a von Mises density of κ = 1 around π/2."""

    coordinates = ("angle",)
    text = "von Mises on the unit circle, κ = 1, centred at π/2"
    _angle = stats.vonmises(1.0)
    _centre = math.pi / 2

    def draw(self, count: int, random: np.random.Generator) -> Array:
        return random.vonmises(self._centre, 1.0, count)[:, None]

    def place(self, theta: Array) -> Array:
        return np.stack([np.cos(theta[:, 0]), np.sin(theta[:, 0])], axis=1)

    def find(self, x: Array) -> Array:
        return np.arctan2(x[:, 1], x[:, 0])[:, None]

    def log_density(self, x: Array) -> Array:
        found: Array = self._angle.logpdf(self.find(x)[:, 0] - self._centre)
        return found

    def uniforms(self, x: Array) -> Array:
        found: Array = self._angle.cdf(_turned(self.find(x) - self._centre))
        return found


class Sphere(Truth):
    """The unit sphere in R³, with a von Mises–Fisher density of κ = 2 around the pole: heights and an angle."""

    coordinates = ("height", "angle")
    text = "von Mises–Fisher on the unit sphere, κ = 2, centred at the pole"
    _kappa = 2.0

    def draw(self, count: int, random: np.random.Generator) -> Array:
        height = 1 + np.log(random.uniform(np.exp(-2 * self._kappa), 1, count)) / self._kappa
        return np.stack([height, random.uniform(0, 2 * np.pi, count)], axis=1)

    def place(self, theta: Array) -> Array:
        height, angle = theta.T
        ring = np.sqrt(np.maximum(0, 1 - height**2))
        return np.stack([ring * np.cos(angle), ring * np.sin(angle), height], axis=1)

    def find(self, x: Array) -> Array:
        height = x[:, 2] / np.linalg.norm(x, axis=1)
        return np.stack([height, np.arctan2(x[:, 1], x[:, 0])], axis=1)

    def log_density(self, x: Array) -> Array:
        found: Array = self._kappa * self.find(x)[:, 0] + np.log(self._kappa / (4 * np.pi * np.sinh(self._kappa)))
        return found

    def uniforms(self, x: Array) -> Array:
        height, angle = self.find(x).T
        below = np.expm1(self._kappa * (height + 1)) / np.expm1(2 * self._kappa)
        return np.stack([below, angle / (2 * np.pi) + 0.5], axis=1)


class Torus(Truth):
    """A torus in R³ with radii 2 and 0.7, and two von Mises angles: along the ring (κ = 1) and around the tube (κ = ½)."""

    coordinates = ("angle along the ring", "angle around the tube")
    text = "von Mises angles on a torus of radii 2 and 0.7, κ = 1 and ½"
    _ring, _tube = stats.vonmises(1.0), stats.vonmises(0.5)
    _radius, _thickness, _centre = 2.0, 0.7, 1.0

    def draw(self, count: int, random: np.random.Generator) -> Array:
        return np.stack([random.vonmises(0, 1, count), random.vonmises(self._centre, 0.5, count)], axis=1)

    def place(self, theta: Array) -> Array:
        a, b = theta.T
        ring = self._radius + self._thickness * np.cos(b)
        return np.stack([ring * np.cos(a), ring * np.sin(a), self._thickness * np.sin(b)], axis=1)

    def find(self, x: Array) -> Array:
        out = np.hypot(x[:, 0], x[:, 1]) - self._radius
        return np.stack([np.arctan2(x[:, 1], x[:, 0]), np.arctan2(x[:, 2], out)], axis=1)

    def log_density(self, x: Array) -> Array:
        a, b = self.find(x).T
        area = self._thickness * (self._radius + self._thickness * np.cos(b))
        found: Array = self._ring.logpdf(a) + self._tube.logpdf(b - self._centre) - np.log(area)
        return found

    def uniforms(self, x: Array) -> Array:
        a, b = self.find(x).T
        return np.stack([self._ring.cdf(_turned(a)), self._tube.cdf(_turned(b - self._centre))], axis=1)


class SwissRoll(Truth):
    """A rolled-up sheet in R³, (t cos t, height, t sin t): t from 4.7 to 14.1 by a beta density, heights normal."""

    coordinates = ("turn", "height")
    text = "a rolled-up sheet, beta(2, 3) along the roll and normal across it"
    _turn, _across = stats.beta(2, 3), stats.norm(0, 4)
    _begin, _range = 4.7, 9.4

    def draw(self, count: int, random: np.random.Generator) -> Array:
        turn = self._begin + self._range * random.beta(2, 3, count)
        return np.stack([turn, random.normal(0, 4, count)], axis=1)

    def place(self, theta: Array) -> Array:
        t, height = theta.T
        return np.stack([t * np.cos(t), height, t * np.sin(t)], axis=1)

    def find(self, x: Array) -> Array:
        """The nearest of the windings at that angle, then Gauss–Newton steps along the spiral."""
        flat, angle = x[:, [0, 2]], np.arctan2(x[:, 2], x[:, 0])
        windings = angle[:, None] + 2 * np.pi * np.arange(0, 4)
        inside = (windings > self._begin - 1) & (windings < self._begin + self._range + 1)
        away = np.where(inside, np.abs(np.linalg.norm(flat, axis=1)[:, None] - windings), np.inf)
        t = windings[np.arange(len(x)), away.argmin(axis=1)]
        for _ in range(6):
            point = np.stack([t * np.cos(t), t * np.sin(t)], axis=1)
            along = np.stack([np.cos(t) - t * np.sin(t), np.sin(t) + t * np.cos(t)], axis=1)
            step = ((flat - point) * along).sum(axis=1) / (1 + t**2)
            t = np.clip(t + step, self._begin, self._begin + self._range)
        return np.stack([t, x[:, 1]], axis=1)

    def _share(self, t: Array) -> Array:
        return (t - self._begin) / self._range

    def log_density(self, x: Array) -> Array:
        t, height = self.find(x).T
        along = self._turn.logpdf(self._share(t)) - math.log(self._range)
        found: Array = along + self._across.logpdf(height) - 0.5 * np.log1p(t**2)
        return found

    def uniforms(self, x: Array) -> Array:
        t, height = self.find(x).T
        return np.stack([self._turn.cdf(self._share(t)), self._across.cdf(height)], axis=1)


def _turned(angle: Array) -> Array:
    """The same angles from −π to π, where the distribution function of scipy goes from 0 to 1."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def load_truth(entry: Dataset, root: Path, *, seed: int = 0) -> Splits:
    """Points of a known truth: three parts of the sizes that the entry states, each from a seed of its own."""
    truth = entry.known_truth()
    if truth is None:
        raise ValueError(f"expected a data set with a known truth; got '{entry.name}'")
    train, validation, test = (
        truth.place(truth.draw(count, np.random.default_rng(seed + 10_000 * i))).astype(np.float32)
        for i, count in enumerate(entry.rows)
    )
    return Splits(entry.name, train, validation, test, ("x", "y", "z")[: entry.shape[0]], truth.text)
