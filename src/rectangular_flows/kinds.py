"""Settings by kind: one small dataclass for each choice, and the flat mapping of names to values that stands for them all.

A field made by :func:`choice` holds a :class:`Chosen`, the name of a kind and the settings of that kind; a field made by
:func:`only` applies under a condition. In a configuration file and on the command line all have their plain names:
``volume = "stochastic"``, ``probes = 3``. A :class:`Table` knows all of them, and which of them apply.

Example:
    >>> @dataclass(frozen=True)
    ... class Bounded:
    ...     bound: float = 2.0
    >>> @dataclass(frozen=True)
    ... class Coupling:
    ...     scale: Chosen = choice({"tanh": Bounded, "exp": Nothing}, "tanh")
    >>> table = Table(Coupling)
    >>> make(Coupling, table.sift({"bound": 0.1}))
    Coupling(scale=Chosen(name='tanh', settings=Bounded(bound=0.1)))
    >>> table.sift({"scale": "exp", "bound": 0.1})
    Traceback (most recent call last):
    ValueError: bound is for scale = tanh; this run has scale = exp. Leave it out, or add --scale tanh
"""

from __future__ import annotations

import inspect
import re
import reprlib
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple

from .spelling import nearest, shortened

Get = Callable[[str], Any]
Kinds = Callable[[], Mapping[str, type]]


@dataclass(frozen=True)
class Nothing:
    """The settings of a kind that has none."""


class Chosen(NamedTuple):
    """A choice: the name of the kind, and its settings."""

    name: str
    settings: Any


class Condition(NamedTuple):
    """When a setting applies.

    Attributes:
        keys: the settings it depends on; where one of them does not apply itself, neither does this one.
        holds: of a function that gives the value of a setting by its name, None where there is no such setting.
        values: of the only key, for which it holds, if they can be listed.
        text: what the setting is for, if they cannot.
    """

    keys: tuple[str, ...]
    holds: Callable[[Get], bool]
    values: tuple[str, ...] = ()
    text: str = ""


def when(key: str, *values: str) -> Condition:
    """The condition that another setting has one of these values; or, without any, that it is switched on."""
    if values:
        return Condition((key,), lambda get: get(key) in values, values)
    return Condition((key,), lambda get: get(key) not in (None, False, 0, (0, 0)), text=f"a run with {key}")


def only(default: Any, condition: Condition) -> Any:
    """A field that applies where the condition holds."""
    return field(default=default, metadata={"condition": condition})


def named(default: str, names: Iterable[str]) -> Any:
    """A field that holds one of these names, such as the keys of a registry, which may grow."""
    return field(default=default, metadata={"names": names})


def choice(
    kinds: Mapping[str, type] | Kinds,
    default: str,
    condition: Condition | None = None,
    *,
    default_factory: Callable[[], Any] | None = None,
    describe: Callable[[Any], Chosen] = lambda value: value,
) -> Any:
    """A field that holds a :class:`Chosen`.

    Args:
        kinds: name → dataclass with the settings of the kind; or a function that gives them.
        default: the name of the default.
        condition: under which the field applies.
        default_factory: what makes the default, where the field holds something else that stands for a Chosen.
        describe: from that to the Chosen.
    """
    known: Kinds = kinds if callable(kinds) else lambda: kinds
    make_default = default_factory or (lambda: Chosen(default, known()[default]()))
    metadata = {"kinds": known, "default": default, "condition": condition, "describe": describe}
    return field(default_factory=make_default, metadata=metadata)


class Setting(NamedTuple):
    """A setting in one of its places: the class that lists it, the one that has the field, and when it applies."""

    root: type
    owner: type
    field: Field[Any]
    condition: Condition | None

    @property
    def hint(self) -> Any:
        """Its type."""
        kinds, names = self.field.metadata.get("kinds"), self.field.metadata.get("names")
        if kinds or names:
            return Literal[tuple(kinds() if kinds else names or ())]
        return _hints(self.owner)[self.field.name]

    @property
    def default(self) -> Any:
        """Its default; of a choice the name."""
        return self.field.metadata.get("default", self.field.default)

    @property
    def help(self) -> str:
        """What the docstring of its class, or of a base of it, says about it."""
        for cls in self.owner.__mro__:
            found = re.search(rf"^    {self.field.name}: (.*(?:\n {{8}}.*)*)", inspect.getdoc(cls) or "", re.M)
            if found:
                return " ".join(found[1].split())
        return ""


class Table:
    """The settings of some dataclasses and of all the kinds in them, by name.

    Args:
        roots: the dataclasses.
    """

    def __init__(self, *roots: type):
        self._places: dict[str, list[Setting]] = {}
        for root in roots:
            for setting in _settings(root, root, None):
                self._places.setdefault(setting.field.name, []).append(setting)

    def settings(self) -> dict[str, Setting]:
        """By name; of several places the first."""
        return {name: places[0] for name, places in self._places.items()}

    def scope(self, name: str) -> str:
        """What a setting is for; empty where it is for all."""
        conditions = [place.condition for place in self._places[name]]
        return "" if None in conditions else _words(filter(None, conditions))

    def sift(self, given: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The values that apply, each converted to its type.

        Args:
            given: values that must apply, unless they switch something off.
            base: values under those, dropped where they do not apply: those of a preset, for instance.

        Raises:
            ValueError: a name is unknown, a value is not possible, or a given one does not apply.
        """
        values: dict[str, Any] = {}
        for name, value in {**(base or {}), **given}.items():
            if name not in self._places:
                raise ValueError(f"unknown setting {name!r}.{nearest(name, self._places)}")
            values[name] = self.convert(name, value)
        for name in given:
            self.check(name, values)
        return {name: value for name, value in values.items() if self.applies(name, values)}

    def convert(self, name: str, value: Any) -> Any:
        """The value as the setting has it; see :func:`convert`."""
        return convert(name, value, self._places[name][0].hint)

    def applies(self, name: str, values: Mapping[str, Any]) -> bool:
        """Whether a setting applies beside these values; what is not among them has its default."""
        return any(place.condition is None or self._holds(place.condition, values) for place in self._places[name])

    def check(self, name: str, values: Mapping[str, Any]) -> None:
        """Refuse the value of a setting that does not apply; one that switches it off is let pass.

        Raises:
            ValueError: it does not apply; the message says what it is for.
        """
        value = values[name]
        off = value is None or value is False or self._places[name][0].default == 0 == value
        if not (off or self.applies(name, values)):
            text, has, flags = self._why_not(name, values)
            advice = f", or add {' '.join(flags)}" if flags else ""
            raise ValueError(f"{text}; this run has {has}. Leave it out{advice}")

    def _why_not(self, name: str, values: Mapping[str, Any]) -> tuple[str, str, list[str]]:
        """What a setting is for, what there is instead, and the flags that would make it apply."""
        conditions = [place.condition for place in self._places[name] if place.condition]
        text = f"{name} is for {_words(conditions)}"
        flags = [f"--{c.keys[0].replace('_', '-')} {value}" for c in conditions[:1] for value in c.values[:1]]
        keys = dict.fromkeys(key for condition in conditions for key in condition.keys if key in self._places)
        for key in keys:
            if not self.applies(key, values):
                inner, has, more = self._why_not(key, values)
                return f"{text}; {inner}", has, [*more, *flags]
        return text, " and ".join(f"{key} = {self._value(key, values)}" for key in keys), flags

    def _holds(self, condition: Condition, values: Mapping[str, Any]) -> bool:
        keys = [key for key in condition.keys if key in self._places]  # the others are settings of another table
        get = partial(self._value, values=values)
        return not keys or (all(self.applies(key, values) for key in keys) and condition.holds(get))

    def _value(self, name: str, values: Mapping[str, Any]) -> Any:
        """Of a setting, or its default where it does not apply."""
        if name not in self._places:
            return None
        given = name in values and self.applies(name, values)
        return values[name] if given else self._places[name][0].default


def make(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """The dataclass with these values, as :meth:`Table.sift` gives them; what is missing has its default."""
    arguments = {}
    for f in fields(cls):
        if "kinds" in f.metadata:
            name = values.get(f.name, f.metadata["default"])
            arguments[f.name] = Chosen(name, make(f.metadata["kinds"]()[name], values))
        elif f.name in values:
            arguments[f.name] = values[f.name]
    return cls(**arguments)


def flat(settings: Any) -> dict[str, Any]:
    """The values in a dataclass and in the kinds in it, by name."""
    values: dict[str, Any] = {}
    for f in fields(settings):
        value = getattr(settings, f.name)
        if "kinds" in f.metadata:
            chosen = f.metadata["describe"](value)
            values |= {f.name: chosen.name, **flat(chosen.settings)}
        else:
            values[f.name] = value
    return values


def _settings(root: type, owner: type, condition: Condition | None) -> Iterator[Setting]:
    for f in fields(owner):
        yield Setting(root, owner, f, f.metadata.get("condition") or condition)
        for name, kind in f.metadata.get("kinds", dict)().items():
            yield from _settings(root, kind, when(f.name, name))


def _words(conditions: Iterable[Condition]) -> str:
    found: dict[str, dict[str, None]] = {}
    for keys, _, values, text in conditions:
        found.setdefault(text or f"{keys[0]} = ", {}).update(dict.fromkeys(values))
    return ", or ".join(start + " or ".join(", ".join(values).rsplit(", ", 1)) for start, values in found.items())


@cache
def _hints(owner: type) -> dict[str, Any]:
    # the classes of volumes, which would import torch, are those of a choice
    return typing.get_type_hints(owner, localns={"Auto": Any, "Exact": Any, "Stochastic": Any})


# --- values


def convert(name: str, value: Any, hint: Any) -> Any:
    """The value of a setting, which may be the text of a flag, as its type has it.

    Raises:
        ValueError: that is not possible; the message says what was expected.

    Example:
        >>> convert("hidden", "64,64", tuple[int, ...]), convert("clip", "none", float | None), convert("probes", 3, int)
        ((64, 64), None, 3)
    """
    below = ""
    for option in sorted(_options(hint), key=lambda option: option is not NoneType):
        try:
            return _as(value, option)
        except OverflowError:
            below = ", below 2⁶³"
        except (TypeError, ValueError, RecursionError):
            continue
    meant = nearest(value, choices_of(hint)) if isinstance(value, str) else ""
    raise ValueError(f"{name}: expected {_expected(hint)}{below}; got {_quoted(value)}{meant and f'.{meant}'}")


def _quoted(value: Any) -> str:
    """For a message, however long or deep it is."""
    return shortened(value if isinstance(value, str) else reprlib.repr(value), 60)


def _as(value: Any, hint: Any) -> Any:
    arguments = typing.get_args(hint)
    if hint is NoneType and value in (None, "none"):
        return None
    if typing.get_origin(hint) is Literal and value in arguments:
        return value
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = tomllib.loads(f"v = {value}")["v"] if value.startswith("[") else filter(None, value.split(","))
        items = tuple(_as(item.strip() if isinstance(item, str) else item, arguments[0]) for item in value)
        if arguments[1] is Ellipsis or len(items) == len(arguments):
            return items
    if hint in (int, float) and not isinstance(value, bool):
        number = hint(value)
        if hint is int and abs(number) > _LARGEST:
            raise OverflowError
        if isinstance(value, str) or hint is float or number == value:
            return number
    if hint in (bool, str) and isinstance(value, hint):
        return value
    raise TypeError


def choices_of(hint: Any) -> tuple[str, ...]:
    """The values that a setting may have, "none" among them where it may be none, if all have names."""
    plain, names = _read(hint)
    return () if plain else tuple(names)


def metavar_of(hint: Any) -> str:
    """What stands for a value in ``--help``."""
    return _PLAIN[_read(hint)[0][0]][0]


def _expected(hint: Any) -> str:
    plain, names = _read(hint)
    return " or ".join([*(_PLAIN[kind][1] for kind in plain), *names]) if plain else f"one of {', '.join(names)}"


def _read(hint: Any) -> tuple[list[Any], list[str]]:
    """The plain types of a hint, and the values that have names."""
    names = [name for option in _options(hint) if option not in _PLAIN for name in typing.get_args(option)]
    return [option for option in _options(hint) if option in _PLAIN], names + ["none"] * (NoneType in _options(hint))


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (UnionType, typing.Union) else (hint,)


_LARGEST = 2**63 - 1  # that torch can count to
_PLAIN: dict[Any, tuple[str, str]] = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    bool: ("", "true or false"),
    str: ("TEXT", "text"),
    tuple[int, ...]: ("N,N,…", "whole numbers such as 64,64"),
    tuple[float, float]: ("X,X", "two numbers such as 25,50"),
    tuple[str, ...]: ("NAME,…", "names such as a,b"),
}
