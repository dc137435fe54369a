r"""Real NVP for vectors and, multi-scale, for images: chains of affine couplings with alternating masks.

Reference: Dinh et al., Density estimation using Real NVP, arXiv:1605.08803.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import torch

from .actnorm import ActNorm
from .angles import OnLines, SeenAsPairs, TurnsAngles, Wrap
from .coupling import CheckerboardMask, Coupling, Mask, even_odd, halves, keep_nothing, leading
from .injection import Bijection, BijectiveChain, Chain, Shape, as_shape
from .linear import FreeLinear, LULinear, Permutation, inverse_product
from .multiscale import Split, Squeeze
from .networks import MLP, Constant, Network, ResidualConvNet, ResidualMLP
from .transformers import Affine, Transformer, as_transformer

T = TypeVar("T")


def _residual(inputs: int, outputs: int, hidden: Sequence[int], activation: str, zero_init: bool) -> Network:
    if len(set(hidden)) != 1 or len(hidden) % 2:
        raise ValueError(f"a residual network needs an even number of equal widths; got {tuple(hidden)}")
    return ResidualMLP(inputs, outputs, hidden[0], len(hidden) // 2, activation, zero_init)


MASKS: dict[str, Callable[[int, bool], Mask]] = {"even-odd": even_odd, "halves": halves}
NETWORKS: dict[str, Callable[[int, int, Sequence[int], str, bool], Network]] = {"mlp": MLP, "residual": _residual}
MIXING: dict[str, type[Permutation] | type[LULinear] | type[FreeLinear]] = {
    "permutation": Permutation,
    "lu": LULinear,
    "free": FreeLinear,
}


def _choice(name: str, value: str, choices: Mapping[str, T]) -> T:
    if value not in choices:
        raise ValueError(f"expected {name} among {', '.join(choices)}; got {value!r}")
    return choices[value]


class RealNVP(BijectiveChain):
    """Couplings in R^n with alternating masks.

    The defaults are for users: small networks that start as the identity, with a bounded log-scale. The paper's flows are
    ``RealNVP(n, layers=10, hidden=(128,) * 4, activation="tanh", scale="exp", zero_init=False)`` for f̃ on tables and
    ``RealNVP(n, layers=5, hidden=(32, 32), activation="tanh", scale="exp", zero_init=False)`` for h.

    With one feature there is nothing to condition on, and every coupling is a learned affine map.

    Args:
        features: n.
        layers: number of couplings.
        hidden: widths of each coupling's MLP; with ``network="residual"``, equal widths, two for each residual block.
        activation: "tanh", "silu" or "relu".
        mask: what alternates between kept and changed from layer to layer: "even-odd" indices, "halves", or a number n
            for the first n coordinates and the rest.
        scale: the transformer of the couplings: "tanh" (bounded), "exp" (as published), "sigmoid", or an object; see
            :mod:`~rectangular_flows.flows.transformers`.
        bound: largest log-scale of one layer with ``scale="tanh"``.
        network: "mlp" or "residual" (a residual MLP).
        mixing: a linear layer before each coupling: None, "permutation", "lu" or "free" (f̃ needs no log-determinant).
        mixing_start: "identity" for random mixing layers whose product is the identity, so that the whole starts as the
            identity; "random" for a whole that starts as a random rotation or permutation.
        actnorm: an ActNorm after each coupling; call ``initialise`` with data before training.
        zero_init: start every coupling as the identity.
        angles: the first so many coordinates are angles, which couplings only turn and networks see as (cos, sin); mixing
            layers leave them out. See :mod:`~rectangular_flows.flows.angles`.

    Example:
        >>> import torch
        >>> flow = RealNVP(features=3, layers=4)
        >>> x, log_det = flow.forward_with_log_det(torch.randn(5, 3))
        >>> x.shape, log_det.shape
        (torch.Size([5, 3]), torch.Size([5]))
    """

    def __init__(
        self,
        features: int,
        layers: int = 6,
        hidden: Sequence[int] = (64, 64),
        *,
        activation: str = "silu",
        mask: Literal["even-odd", "halves"] | int = "even-odd",
        scale: str | Transformer = "tanh",
        bound: float = 2.0,
        network: Literal["mlp", "residual"] = "mlp",
        mixing: Literal["permutation", "lu", "free"] | None = None,
        mixing_start: Literal["identity", "random"] = "identity",
        actnorm: bool = False,
        zero_init: bool = True,
        angles: int = 0,
    ):
        as_shape(features)
        if layers < 1:
            raise ValueError(f"expected at least one layer; got {layers}")
        transformer, make_network = as_transformer(scale, bound), _choice("network", network, NETWORKS)
        make_mixing = None if mixing is None else _choice("mixing", mixing, MIXING)
        _choice("mixing_start", mixing_start, {"identity": True, "random": True})
        make_mask = _choice("mask", mask, MASKS) if isinstance(mask, str) else lambda n, keep: leading(n, mask, keep)
        if angles and (actnorm or not isinstance(transformer, Affine)):
            raise ValueError("angles can only be turned: they go with an affine transformer, and without actnorm")
        links: list[Bijection] = [Wrap(angles, features)] if angles else []
        mixed = features - angles
        mixers: list[Permutation | LULinear | FreeLinear] = []
        for i in range(layers):
            chosen = keep_nothing(1) if features == 1 else make_mask(features, (layers - i) % 2 == 1)
            if make_mixing is not None and (not angles or mixed > 1):
                mixers.append(make_mixing(mixed))
                links.append(OnLines(angles, mixers[-1]) if angles else mixers[-1])
            outputs = transformer.parameters * chosen.changed_size
            seen, moved = (part < angles for part in chosen.split(torch.arange(features)))
            if chosen.kept_size:
                inputs = chosen.kept_size + int(seen.sum())
                conditioner = make_network(inputs, outputs, hidden, activation, zero_init)
            else:
                conditioner = Constant(outputs)
            if bool(seen.any()):
                conditioner = SeenAsPairs(conditioner, seen.nonzero().flatten().tolist())
            change = transformer
            if isinstance(transformer, Affine) and bool(moved.any()):
                change = TurnsAngles(transformer, moved.tolist())
            links.append(Coupling(chosen, conditioner, change))
            if actnorm:
                links.append(ActNorm(features))
        if mixers and mixing_start == "identity":
            mixers[0].start_from(inverse_product(mixers[1:], mixed))
        super().__init__(*links)
        self.angles = angles


class MultiscaleRealNVP(Chain):
    """The paper's multi-scale image flow.

    In the order x → z: 3 checkerboard couplings, squeeze, 3 channel couplings, split, 4 checkerboard couplings. The
    split drops half the channels, which are zero-padded on the way back, so that the latent image has half the
    entries of the data: 392 for MNIST, 1,536 for CIFAR-10.

    Args:
        shape: (channels, height, width) of the images; height and width even.
        width: channels of the residual couplers (64).
        blocks: residual blocks of each coupler (8, or 4 for the smaller published variant).
        scale: "exp" as published (the coupler's output is already a scaled tanh), or "tanh", "sigmoid".
        bound: largest log-scale of one layer with ``scale="tanh"``.
        zero_init: start every coupling as the identity.

    Example:
        >>> flow = MultiscaleRealNVP(shape=(1, 8, 8), width=4, blocks=1)
        >>> flow.in_shape, flow.out_shape
        ((2, 4, 4), (1, 8, 8))
    """

    def __init__(
        self,
        shape: Shape,
        width: int = 64,
        blocks: int = 8,
        *,
        scale: str | Transformer = "exp",
        bound: float = 2.0,
        zero_init: bool = False,
    ):
        if len(shape) != 3:
            raise ValueError(f"expected an image shape (channels, height, width); got {tuple(shape)}")
        squeeze = Squeeze(tuple(shape))
        wide = squeeze.in_shape
        narrow = (wide[0] // 2, *wide[1:])

        transformer = as_transformer(scale, bound)

        def coupling(mask: Mask) -> Coupling:
            size, outputs = (mask.shape[1], mask.shape[2]), transformer.parameters * mask.changed_size
            net = ResidualConvNet(mask.kept_size, outputs, size, width, blocks, zero_init=zero_init)
            return Coupling(mask, net, transformer)

        # listed from data to latent, as in the paper, then reversed
        fine: list[Bijection] = [coupling(CheckerboardMask(tuple(shape), i % 2 == 0)) for i in range(3)]
        fine.append(squeeze)
        fine += [coupling(halves(wide, i % 2 == 0)) for i in range(3)]
        coarse: list[Bijection] = [coupling(CheckerboardMask(narrow, i % 2 == 0)) for i in range(4)]
        super().__init__(*coarse[::-1], Split(wide), *fine[::-1])
