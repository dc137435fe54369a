"""One small example of every layer, by name: what the generic tests run over."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rectangular_flows.flows import (
    MLP,
    ActNorm,
    AffineCoupling,
    Alignment,
    CheckerboardMask,
    Coupling,
    Embedding,
    FreeLinear,
    Identity,
    Injection,
    Logit,
    LULinear,
    MultiscaleRealNVP,
    OnCircles,
    OrthonormalEmbedding,
    Pad,
    Periodic,
    Permutation,
    RealNVP,
    ResidualConvNet,
    ResidualMLP,
    Split,
    Squeeze,
    Standardise,
    Transformer,
    Whitening,
    Winding,
    chain,
    even_odd,
    halves,
)
from rectangular_flows.flows.transformers import TRANSFORMERS, Tanh


class Additive(Transformer):
    """A transformer that is not affine in our sense, with its tangents from torch.func."""

    parameters = 1

    def forward(self, z, *theta):
        return z + theta[0] ** 3, torch.zeros_like(z)

    def inverse(self, x, *theta):
        return x - theta[0] ** 3, torch.zeros_like(x)


def _coupling(transformer):
    return Coupling(even_odd(5, True), MLP(3, 2 * transformer.parameters, (7,), "tanh"), transformer())


def _aligned():
    layer = Alignment("circle", 4)
    layer.initialise(
        torch.randn(50, 4, generator=torch.Generator().manual_seed(5)) * torch.tensor([1.0, 2.0, 0.5, 1.0])
    )
    return layer


def _wound():
    layer = Winding(3, 5, circles=1, lines=1)
    angle = torch.linspace(-3, 3, 50)
    columns = (angle, 0.3 * angle.cos() + 1, 2 - angle, angle.sin(), 2 * angle.cos())
    layer.initialise(torch.stack(columns, dim=1))
    return layer


LAYERS: dict[str, Callable[[], Injection]] = {
    "identity": lambda: Identity(3),
    "pad": lambda: Pad(2, 5),
    "pad-image": lambda: Pad(3, (2, 2, 3)),
    "coupling-halves": lambda: AffineCoupling(halves(5, False), MLP(2, 6, (7, 6), "silu")),
    "coupling-residual": lambda: Coupling(even_odd(4, False), ResidualMLP(2, 4, 6, 2, "tanh"), Tanh(0.5)),
    "coupling-additive": lambda: _coupling(Additive),
    **{f"coupling-{name}": (lambda t=t: _coupling(t)) for name, t in TRANSFORMERS.items()},
    "coupling-relu": lambda: AffineCoupling(halves(4, True), MLP(2, 4, (8,), "relu")),
    "coupling-checkerboard": lambda: AffineCoupling(
        CheckerboardMask((2, 4, 3), True), ResidualConvNet(2, 4, (4, 3), 3, 1, "silu")
    ),
    "coupling-channels": lambda: AffineCoupling(halves((3, 2, 4), True), ResidualConvNet(2, 2, (2, 4), 3, 2)),
    "permutation": lambda: Permutation(5),
    "lu": lambda: LULinear(5),
    "free-linear": lambda: FreeLinear(5),
    "whitening": lambda: Whitening(4),
    "embedding": lambda: OrthonormalEmbedding(2, 5),
    "embedding-trained": lambda: OrthonormalEmbedding(3, (1, 2, 3), trainable=True),
    "actnorm": lambda: ActNorm(3),
    "actnorm-image": lambda: ActNorm((3, 2, 2)),
    "squeeze": lambda: Squeeze((2, 4, 6)),
    "split": lambda: Split((4, 2, 3)),
    "logit": lambda: Logit(4, margin=0.05),
    "standardise": lambda: Standardise(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.5, 2.0, 3.0])),
    "alignment": lambda: _aligned(),
    "circle": lambda: Embedding("circle"),
    "torus": lambda: Embedding("torus:3"),
    "ring-torus": lambda: Embedding("line*torus:2", ring=True),
    "cylinder": lambda: Embedding("circle*line:2*circle"),
    "sphere": lambda: Embedding("sphere"),
    "sphere-and-more": lambda: Embedding("line*sphere*circle"),
    "closed-chain": lambda: chain(
        Embedding("line*circle"), Pad(3, 5), RealNVP(5, 2, (5,), zero_init=False), Logit(5, margin=0.05)
    ),
    "real-nvp": lambda: RealNVP(5, layers=3, hidden=(8,), zero_init=False, mixing="free", actnorm=True),
    "real-nvp-residual": lambda: RealNVP(4, 2, (6, 6), network="residual", mask="halves", mixing="lu", zero_init=False),
    "real-nvp-leading": lambda: RealNVP(5, 3, (6, 6), network="residual", mask=2, zero_init=False),
    "real-nvp-one-feature": lambda: RealNVP(1, layers=2),
    "real-nvp-angles": lambda: RealNVP(5, 3, (6,), mixing="free", zero_init=False, angles=2),
    "winding": lambda: _wound(),
    "periodic": lambda: chain(OnCircles(2, 1), Periodic(3, [2, 0], [24.0, 360.0], [0.0, -180.0])),
    "multiscale-real-nvp": lambda: MultiscaleRealNVP((1, 4, 6), width=3, blocks=1),
    "principal": lambda: chain(
        Pad(2, 4, order="first"),
        RealNVP(4, 2, (6,), mask=2, zero_init=False),
        ActNorm(4),
        OrthonormalEmbedding(4, (1, 2, 3)),
        Logit((1, 2, 3), margin=0.05),
    ),
    "chain": lambda: chain(Pad(2, 4), RealNVP(4, 2, (5,), zero_init=False), Logit(4, margin=0.05)),
}
