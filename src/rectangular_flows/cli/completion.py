"""``rnf completion``: a script that completes commands, options and their values in bash and zsh."""

from __future__ import annotations

import argparse

from ..settings import all_settings, preset_names
from .options import OWN_FLAGS, choices_of

_SCRIPT = """# rnf completion; load it with: eval "$(rnf completion {shell})"
{prelude}_rnf() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  case "${{COMP_WORDS[1]}}:$previous" in
{values}
    *) case "${{COMP_WORDS[1]}}" in
{options}
      esac ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words="{commands}"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _rnf rnf
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="%(choices)s")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from . import COMMANDS, command_line

    parser = command_line([name for name in COMMANDS if name != "fit"])
    commands = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
    print(script(arguments.shell, commands), end="")
    return 0


def script(shell: str, commands: dict[str, argparse.ArgumentParser]) -> str:
    """The completion script for a shell; file names are completed wherever nothing else fits.

    Args:
        shell: "bash" or "zsh".
        commands: the parser of each command.
    """
    fit = {f"--{s.name.replace('_', '-')}": choices_of(s.hint) for s in all_settings().values() if s.name != "data"}
    fit |= dict.fromkeys(OWN_FLAGS, ())
    fit["--preset"] = tuple(preset_names())
    values = [f'    fit:{flag}) words="{" ".join(chosen)}" ;;' for flag, chosen in fit.items() if chosen]
    options = [f'        fit) words="{" ".join(fit)}" ;;']
    for name, parser in commands.items():
        flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
        words = [str(c) for action in parser._actions if not action.option_strings for c in action.choices or ()]
        if name != "fit":
            options.append(f'        {name}) words="{" ".join(words + flags)}" ;;')
    prelude = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return _SCRIPT.format(
        shell=shell,
        prelude=prelude,
        values="\n".join(values),
        options="\n".join(options),
        commands=" ".join(commands),
    )


__all__ = ["add_arguments", "run", "script"]
