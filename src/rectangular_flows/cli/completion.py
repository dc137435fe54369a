"""``rnf completion``: a script that completes commands, options and their values in bash and zsh."""

from __future__ import annotations

import argparse

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
    """Print the script; file names are completed wherever nothing else fits."""
    from . import COMMANDS, command_line

    parsers = next(action.choices for action in command_line(COMMANDS)._actions if isinstance(action.choices, dict))
    values, options = [], []
    for name, parser in parsers.items():
        flags = {flag: action for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
        words = [str(word) for action in parser._actions if not action.option_strings for word in action.choices or ()]
        options.append(f'        {name}) words="{" ".join([*words, *flags])}" ;;')
        for flag, action in flags.items():
            if action.choices:
                values.append(f'    {name}:{flag}) words="{" ".join(map(str, action.choices))}" ;;')
    prelude = "autoload -U +X bashcompinit && bashcompinit\n" if arguments.shell == "zsh" else ""
    parts = {"values": "\n".join(values), "options": "\n".join(options), "commands": " ".join(parsers)}
    print(_SCRIPT.format(shell=arguments.shell, prelude=prelude, **parts), end="")
    return 0
