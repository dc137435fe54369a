"""A model as data: the constructor calls that made it, written as JSON and called again.

A description names classes and their arguments, never code. Building one calls constructors of this package, or of
layers that you have defined and imported yourself, and nothing else: a model file from a stranger is safe to open. Tensors
are described by their shape; their values are in the weights.
"""

from __future__ import annotations

import inspect
from math import inf
from typing import Any, Self

import torch
from torch import Tensor

from .allowance import Allowance

_TENSOR, _SLICE, _CLASS, _MAPPING = "tensor", "slice", "class", "mapping"
_MOST_DEPTH = 50


class Described:
    """Remembers the arguments it was made with, so that :func:`describe` can write them down.

    The base of every layer, network, mask and density: a class of your own gets it by inheritance. Arguments must be
    plain values, tensors that the state dict holds too, or other described objects.
    """

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self.__dict__["_arguments"] = (args, kwargs)
        return self


def describe(value: Any, where: str = "model") -> Any:
    """The description of a model or of an argument, made of JSON values.

    Raises:
        TypeError: some part cannot be described; the message says which.

    Example:
        >>> from rectangular_flows.flows import Identity
        >>> describe(Identity(3))
        {'class': 'Identity', 'arguments': {'features': 3}}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [describe(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {_MAPPING: {str(key): describe(item, f"{where}.{key}") for key, item in value.items()}}
    if isinstance(value, slice):
        return {_SLICE: [value.start, value.stop, value.step]}
    if isinstance(value, Tensor):
        return {_TENSOR: list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Described):
        name = _name(type(value))
        return {_CLASS: name, "arguments": {k: describe(v, f"{where}.{k}") for k, v in _bound(value).items()}}
    raise TypeError(
        f"{where} is a {type(value).__name__}, which has no description. Give layers plain arguments, and a zuko flow by "
        "name: densities.ZukoDensity('NSF', features=2, passes=2). Without a description, keep the code that makes the "
        "model and pass the model to load(…, flow=…)."
    )


def build(description: Any, most_bytes: float = inf) -> Any:
    """The inverse of :func:`describe`: fresh weights, to be filled from a state dict. The global generator is left alone.

    Args:
        description: made of JSON values.
        most_bytes: that its tensors may take in all while they are made.

    Raises:
        ValueError: it is not a description, it names a class that is not there, or it takes more than allowed.

    Example:
        >>> build({"class": "RealNVP", "arguments": {"features": 2, "layers": 1}}).in_shape
        (2,)
    """
    with torch.random.fork_rng(devices=[]), Allowance(most_bytes):
        try:
            return _build(description)
        except ValueError:
            raise
        except Exception as error:  # of a constructor that did not expect such values, or of torch
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"the description of the model is damaged: {type(error).__name__}, {reason}") from error


def _build(value: Any, depth: int = 0) -> Any:
    if depth > _MOST_DEPTH:
        raise ValueError(f"the description of the model is nested more than {_MOST_DEPTH} deep")
    if isinstance(value, list):
        return tuple(_build(item, depth + 1) for item in value)
    if not isinstance(value, dict):
        return value
    if _MAPPING in value:
        return {key: _build(item, depth + 1) for key, item in value[_MAPPING].items()}
    if _SLICE in value:
        return slice(*value[_SLICE])
    if _TENSOR in value:
        return torch.ones(value[_TENSOR], dtype=as_dtype(value.get("dtype")))
    if _CLASS not in value or not isinstance(value.get("arguments"), dict):
        raise ValueError(f"expected a description with 'class' and 'arguments'; got keys {', '.join(map(str, value))}")
    known = {_name(cls): cls for cls in _descendants(Described)}
    if not isinstance(value[_CLASS], str) or value[_CLASS] not in known:
        raise ValueError(
            f"the model uses {value[_CLASS]!r}, which is not a layer of this version. If it is one of your own, import it "
            "first, or pass the model: load(…, flow=…)."
        )
    cls = known[value[_CLASS]]
    arguments = {name: _build(item, depth + 1) for name, item in value["arguments"].items()}
    parameters = inspect.signature(cls).parameters.values()
    positional = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    keywords = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "")
    rest, more = arguments.pop(positional, ()), arguments.pop(keywords, {})
    try:
        return cls(*rest, **arguments, **more)
    except TypeError as error:
        raise ValueError(f"the description of {value[_CLASS]!r} does not fit this version: {error}") from error


def as_dtype(name: Any) -> torch.dtype:
    """The type of numbers of that name.

    Raises:
        ValueError: there is none.
    """
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"expected the name of a type of numbers, such as float32; got {name!r}")
    return found


def _bound(value: Described) -> dict[str, Any]:
    args, kwargs = value._arguments
    bound = inspect.signature(type(value)).bind(*args, **kwargs)
    bound.apply_defaults()  # so that a default changed later does not change an old model
    return dict(bound.arguments)


def _name(cls: type) -> str:
    own = cls.__module__.split(".")[0] == __name__.split(".")[0]
    return cls.__qualname__ if own else f"{cls.__module__}:{cls.__qualname__}"


def _descendants(cls: type) -> list[type]:
    children: list[type] = cls.__subclasses__()
    return [descendant for child in children for descendant in (child, *_descendants(child))]
