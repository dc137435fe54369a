"""The options of ``rnf fit``: a flag for every setting, over a configuration file, over a preset."""

from __future__ import annotations

import argparse
from typing import Any

from ..kinds import choices_of, metavar_of
from ..settings import (
    DEFAULT_PRESET,
    PRESET_FOLDERS,
    FitSettings,
    help_of,
    preset_files,
    preset_summary,
    read_preset,
    read_toml,
    settings_table,
)

_RUN = ("out", "overwrite", "preset", "config")
"""Options that are for a new run, beside the settings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Data, the run, and a flag for every setting."""
    parser.usage = "rnf fit DATA [--latent-dim D] [--out RUN] [options]\n       rnf fit --resume RUN"
    parser.epilog = "Every setting can also stand in a TOML file under the same name, with _ for -: see --config."
    table, usual = settings_table(), read_preset(DEFAULT_PRESET)
    settings = table.settings()
    parser.add_argument("data", nargs="?", metavar="DATA", help=settings.pop("data").help, default=argparse.SUPPRESS)
    run = parser.add_argument_group("run")
    run.add_argument("-o", "--out", metavar="RUN", help="folder for the run (default: runs/NAME)")
    run.add_argument("--config", metavar="FILE", help="a TOML file with settings; flags override it")
    names = ", ".join(preset_files(PRESET_FOLDERS[:1]))
    text = f"settings that come with rnf, instead of '{DEFAULT_PRESET}': {names}, or one of --list-presets"
    run.add_argument("--preset", choices=tuple(preset_files()), metavar="NAME", help=text)
    run.add_argument("--list-presets", action=_ListPresets, help="list all presets, those of the paper too, and exit")
    run.add_argument("--resume", metavar="RUN", help="continue a run from its last checkpoint")
    run.add_argument("--overwrite", action="store_true", help="replace a run that is in the folder")
    run.add_argument("-q", "--quiet", action="store_true", help="show nothing but errors")
    run.add_argument("--tensorboard", action="store_true", help="also write TensorBoard files to RUN/tensorboard")
    groups: dict[type, Any] = {}
    for name, setting in settings.items():
        if setting.root not in groups:
            title = setting.root.__name__.removesuffix("Settings").removesuffix("Config").lower()
            groups[setting.root] = parser.add_argument_group(title)
        default, scope = usual.get(name, setting.default), table.scope(name)
        shown = ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default).lower()
        notes = f"for {scope}; default: {shown}" if scope else f"default: {shown}"
        text = f"{help_of(setting).rstrip('.')} ({notes})".replace("%", "%%")
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        if setting.hint is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif choices_of(setting.hint):
            options["choices"] = choices_of(setting.hint)
        else:
            options["metavar"] = metavar_of(setting.hint)
        groups[setting.root].add_argument(f"--{name.replace('_', '-')}", **options)


def flags_in(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line."""
    known = settings_table().settings()
    return {name: value for name, value in vars(arguments).items() if name in known}


def settings_in(arguments: argparse.Namespace) -> FitSettings:
    """The preset named, or else the default, under the configuration file, under the flags.

    The config.toml of a run is taken as a preset: settings in it that flags have made useless are dropped.

    Raises:
        ValueError: a setting is unknown, has an impossible value, or does not apply.
    """
    given, is_run = read_toml(arguments.config) if arguments.config else ({}, False)
    base = {} if is_run and not arguments.preset else read_preset(arguments.preset or DEFAULT_PRESET)
    if is_run:
        base, given = {**base, **given}, {}
    try:
        flags = flags_in(arguments)
        settings = FitSettings.from_flat({**given, **flags}, base)
        if "time" in flags and settings.training.time is not None and settings.training.epochs != "auto":
            fixed = f"are {settings.training.epochs} here, by --epochs, the preset or the configuration file"
            raise ValueError(f"--time plans the epochs, which {fixed}: give --epochs auto, or leave out --time")
        return settings
    except ValueError as error:
        known = f" (in {arguments.config})" if "unknown setting" in str(error) else ""
        raise ValueError(f"{error}{known}") from error


def refuse_changes(arguments: argparse.Namespace) -> None:
    """Complain about options that ``--resume`` does not go with."""
    changes = [*flags_in(arguments), *(name for name in _RUN if getattr(arguments, name))]
    if changes:
        flags = ", ".join("DATA" if name == "data" else f"--{name.replace('_', '-')}" for name in changes)
        raise ValueError(
            f"--resume continues a run with the settings in its config.toml; leave out {flags}. To train with others, "
            "start a new run: --config RUN/config.toml, and what is to change."
        )


class _ListPresets(argparse.Action):
    """Prints the presets and exits."""

    def __init__(self, **options: Any):
        super().__init__(nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        for name in preset_files():
            print(f"{name:<33}{preset_summary(name)}")
        parser.exit()
