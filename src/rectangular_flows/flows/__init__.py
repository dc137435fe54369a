"""Layers and flows: every one an :class:`Injection` or a :class:`Bijection`."""

from typing import Any

from . import transformers
from .actnorm import ActNorm
from .alignment import Alignment
from .coupling import (
    AffineCoupling,
    CheckerboardMask,
    Coupling,
    Mask,
    SliceMask,
    even_odd,
    halves,
    keep_nothing,
    leading,
)
from .injection import Bijection, BijectiveChain, Chain, Identity, Injection, TangentMap, chain
from .linear import FreeLinear, LULinear, Permutation, Whitening
from .multiscale import Split, Squeeze
from .networks import MLP, Constant, Network, ResidualConvNet, ResidualMLP
from .orthonormal import OrthonormalEmbedding
from .pad import Pad
from .periodic import OnCircles, Periodic
from .realnvp import MultiscaleRealNVP, RealNVP
from .spaces import Embedding, Space
from .transformers import Transformer, register_transformer
from .units import Logit, Standardise
from .winding import Winding

__all__ = [
    "MLP",
    "ActNorm",
    "AffineCoupling",
    "Alignment",
    "Bijection",
    "BijectiveChain",
    "Chain",
    "CheckerboardMask",
    "Constant",
    "Coupling",
    "Embedding",
    "FreeLinear",
    "Identity",
    "Injection",
    "LULinear",
    "Logit",
    "Mask",
    "MultiscaleRealNVP",
    "Network",
    "OnCircles",
    "OrthonormalEmbedding",
    "Pad",
    "Periodic",
    "Permutation",
    "RealNVP",
    "ResidualConvNet",
    "ResidualMLP",
    "SliceMask",
    "Space",
    "Split",
    "Squeeze",
    "Standardise",
    "TangentMap",
    "Transformer",
    "Whitening",
    "Winding",
    "chain",
    "even_odd",
    "halves",
    "keep_nothing",
    "leading",
    "register_transformer",
    "transformers",
]


def __getattr__(name: str) -> Any:
    """Latent densities had their home here once; they are in :mod:`rectangular_flows.densities` now."""
    if name in ("Density", "FlowDensity", "MixtureDensity", "ZukoDensity", "as_density"):
        import importlib

        return getattr(importlib.import_module("rectangular_flows.densities"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
