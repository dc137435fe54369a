"""The options of ``rnf fit``: a flag for every setting, configuration files and presets under them, and kind errors."""

from __future__ import annotations

import argparse
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from jsonargparse import ActionYesNo, ArgumentParser

from .. import toml
from ..settings import DEFAULT_PRESET, Setting, all_settings, is_optional, preset_names, read_preset, read_toml
from ..spelling import nearest

_TITLES = {
    "data": "data",
    "model": "model",
    "volume": "gradient of the log-volume",
    "training": "training",
}
_NEW_RUN = ("config", "preset", "out", "overwrite")
_OWN = ("config", "preset", "out", "resume", "overwrite", "quiet", "tensorboard")


@dataclass(frozen=True)
class FitRequest:
    """What was asked of ``rnf fit``."""

    settings: dict[str, Any]
    given: tuple[str, ...]
    """Flags that were on the command line."""
    preset: str | None
    out: Path | None
    resume: Path | None
    overwrite: bool
    quiet: bool
    tensorboard: bool


def parse_fit(argv: Sequence[str]) -> FitRequest:
    """The preset named, or else 'table', under a configuration file, under the flags.

    Raises:
        ValueError: something is not known or not possible; the message says what was expected.
    """
    files = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    files.add_argument("--config")
    files.add_argument("--preset")
    try:
        chosen, _ = files.parse_known_args([a for a in argv if a not in ("-h", "--help")])
    except SystemExit as stop:
        raise ValueError("expected a file after --config and a name after --preset") from stop
    known = all_settings()
    if not chosen.preset:
        usual = {name: tuple(v) if isinstance(v, list) else v for name, v in read_preset(DEFAULT_PRESET).items()}
        known = {name: replace(setting, default=usual.get(name, setting.default)) for name, setting in known.items()}
    parser = _parser(known)
    values = read_preset(chosen.preset) if chosen.preset else {}
    values |= read_toml(chosen.config) if chosen.config else {}
    if values:
        parser.set_defaults(parser.parse_object(values, defaults=False).as_dict())
    namespace = parser.parse_args(_normalised(argv, known)).as_dict()
    given = tuple(re.sub("^--(no-)?", "", a.partition("=")[0]).replace("-", "_") for a in argv if a.startswith("--"))
    own = {name: namespace.pop(name) for name in _OWN}
    return FitRequest(
        settings={name: namespace[name] for name in known},
        given=tuple(name for name in given if name in known or name in _NEW_RUN)
        + (("data",) if namespace["data"] and not values else ()),
        preset=own["preset"],
        out=None if own["out"] is None else Path(own["out"]),
        resume=None if own["resume"] is None else Path(own["resume"]),
        overwrite=own["overwrite"],
        quiet=own["quiet"],
        tensorboard=own["tensorboard"],
    )


class _Parser(ArgumentParser):
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ValueError(_kind_message(message)) from ex


def _parser(known: dict[str, Setting]) -> _Parser:
    parser = _Parser(
        prog="rnf fit",
        description="Train a rectangular flow on a table, on images or on a known data set; leave all in a run folder.",
        epilog="Every setting can also stand in a TOML file under the same name, with _ for -: see --config.",
        usage="%(prog)s DATA --latent-dim D [--out RUN] [options]\n       %(prog)s --resume RUN",
        parser_mode="toml",
        formatter_class=argparse.HelpFormatter,
    )
    parser.add_argument("data", nargs="?", type=str | None, metavar="DATA", help=known["data"].help)
    run = parser.add_argument_group("run")
    run.add_argument("-o", "--out", type=str | None, metavar="RUN", help="folder for the run (default: runs/NAME)")
    run.add_argument("--config", type=str | None, metavar="FILE", help="a TOML file with settings")
    presets = ", ".join(preset_names())
    run.add_argument(
        "--preset",
        type=str | None,
        metavar="NAME",
        help=f"settings that come with rnf, instead of '{DEFAULT_PRESET}': {presets}",
    )
    run.add_argument("--resume", type=str | None, metavar="RUN", help="go on with a run from its last checkpoint")
    run.add_argument("--overwrite", action="store_true", help="replace a run that is in the folder")
    run.add_argument("-q", "--quiet", action="store_true", help="show nothing but errors")
    run.add_argument("--tensorboard", action="store_true", help="also write TensorBoard files to RUN/tensorboard")
    groups = {name: parser.add_argument_group(title) for name, title in _TITLES.items()}
    for setting in known.values():
        if setting.name == "data":
            continue
        flag, text = (
            f"--{setting.name.replace('_', '-')}",
            f"{setting.help} {_default_text(setting.default)}".replace("%", "%%"),
        )
        if setting.hint is bool:
            action = ActionYesNo(yes_prefix="", no_prefix="no-")
            groups[setting.group].add_argument(flag, action=action, default=setting.default, help=text)
            continue
        options: dict[str, Any] = {"metavar": _metavar(setting.hint), "default": setting.default}
        groups[setting.group].add_argument(flag, type=setting.hint, help=text, **options)
    return parser


def _normalised(argv: Sequence[str], known: dict[str, Setting]) -> list[str]:
    """``--hidden 64,64`` and ``--clip none`` in the spelling of TOML."""
    result: list[str] = []
    tokens = list(argv)
    while tokens:
        token = tokens.pop(0)
        flag, equals, value = token.partition("=")
        setting = known.get(flag.removeprefix("--").replace("-", "_")) if flag.startswith("--") else None
        if setting is None or setting.hint is bool:
            result.append(token)
            continue
        if not equals:
            if not tokens:
                result.append(token)
                continue
            value = tokens.pop(0)
        result.append(f"{flag}={_spelled(value, setting.hint)}")
    return result


def _spelled(value: str, hint: Any) -> str:
    item = _item(hint)
    if value.lower() == "none" and is_optional(hint):
        return "null"
    if item is None or value.startswith("["):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    return "[" + ", ".join(toml.dumps({"v": part})[4:-1] if item is str else part for part in parts) + "]"


def _item(hint: Any) -> Any:
    """The type of the items, if the hint is of a sequence or of an optional one."""
    for option in (hint, *typing.get_args(hint)):
        if typing.get_origin(option) is tuple:
            return typing.get_args(option)[0]
    return None


def choices_of(hint: Any) -> tuple[str, ...]:
    """The values that a setting may have, if they are few and named."""
    for option in (hint, *typing.get_args(hint)):
        if typing.get_origin(option) is Literal:
            return typing.get_args(option)
    return ()


def _metavar(hint: Any) -> str:
    item, choices = _item(hint), choices_of(hint)
    if choices and int not in typing.get_args(hint):
        return "{" + ",".join((*choices, *(["none"] if is_optional(hint) else []))) + "}"
    if item is not None:
        return {int: "N,N,…", float: "X,X", str: "NAME,…"}[item]
    plain = next((option for option in (hint, *typing.get_args(hint)) if option in (int, float, str)), str)
    return {int: "N", float: "X", str: "TEXT"}[plain]


def _words(hint: Any) -> str:
    """What a value must be, in words."""
    optional = " or none" if is_optional(hint) else ""
    choices, item = choices_of(hint), _item(hint)
    if int in typing.get_args(hint) and choices:
        return f"a whole number or {', '.join(choices)}"
    if choices:
        return f"one of {', '.join(choices)}{optional}"
    if item is not None:
        kinds = {int: "whole numbers such as 64,64", float: "two numbers such as 25,50", str: "names such as a,b"}
        return kinds[item] + optional
    if hint is bool:
        return "true or false"
    plain = next((option for option in (hint, *typing.get_args(hint)) if option in (int, float)), str)
    return {int: "a whole number", float: "a number", str: "text"}[plain] + optional


def _default_text(default: Any) -> str:
    if default is None:
        return "(default: none)"
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"(default: {shown})"


def _kind_message(message: str) -> str:
    """The parser's complaint in the words of a person."""
    known = all_settings()
    unknown = re.match(r"unrecognized arguments: (.*)", message)
    if unknown:
        names = [f"--{name.replace('_', '-')}" for name in (*known, *_OWN)]
        word = next((w for w in unknown[1].split() if w.startswith("-")), unknown[1].split()[0])
        if not word.startswith("-"):
            return f"one data set at a time: what is {word!r} for? Options begin with --; see rnf fit --help"
        return f"unknown option {word}.{nearest(word.partition('=')[0], names)} All are in rnf fit --help"
    key = re.search(r'[Kk]ey "([\w.]+)"', message)
    value = re.search(r"(?:Got value|Given value): (.*)", message)
    if key and key[1] in known and value:
        return f"{key[1].replace('_', '-')}: expected {_words(known[key[1]].hint)}; got {value[1]}"
    return message


OWN_FLAGS = tuple(f"--{name}" for name in _OWN)

__all__ = ["OWN_FLAGS", "FitRequest", "choices_of", "parse_fit"]
