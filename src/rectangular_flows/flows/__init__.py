"""Layers and flows: every one an :class:`Injection` or a :class:`Bijection`."""

from .actnorm import ActNorm
from .adapters import Density, FlowDensity, ZukoDensity, as_density
from .coupling import AffineCoupling, CheckerboardMask, Mask, SliceMask, even_odd, halves, keep_nothing, leading
from .data import Logit, Standardise
from .injection import Bijection, BijectiveChain, Chain, Identity, Injection, TangentMap, chain
from .linear import FreeLinear, LULinear, OrthonormalEmbedding, Permutation, Whitening
from .mixture import MixtureDensity
from .multiscale import OnFirstHalf, Split, Squeeze
from .networks import MLP, Constant, Network, ResidualConvNet, ResidualMLP
from .pad import Pad
from .realnvp import MultiscaleRealNVP, RealNVP, square_multiscale_realnvp

__all__ = [
    "MLP",
    "ActNorm",
    "AffineCoupling",
    "Bijection",
    "BijectiveChain",
    "Chain",
    "CheckerboardMask",
    "Constant",
    "Density",
    "FlowDensity",
    "FreeLinear",
    "Identity",
    "Injection",
    "LULinear",
    "Logit",
    "Mask",
    "MixtureDensity",
    "MultiscaleRealNVP",
    "Network",
    "OnFirstHalf",
    "OrthonormalEmbedding",
    "Pad",
    "Permutation",
    "RealNVP",
    "ResidualConvNet",
    "ResidualMLP",
    "SliceMask",
    "Split",
    "Squeeze",
    "Standardise",
    "TangentMap",
    "Whitening",
    "ZukoDensity",
    "as_density",
    "chain",
    "even_odd",
    "halves",
    "keep_nothing",
    "leading",
    "square_multiscale_realnvp",
]
