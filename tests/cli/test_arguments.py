"""What each command accepts: its usage, its help, and the values of what is left out."""

import argparse
from pathlib import Path

import pytest

from rectangular_flows.cli import COMMANDS, command_line

RUN = Path("run")
NETWORK = {"network": None, "network_sha256": None}

# words that must be given → the usage, and every value
ARGUMENTS = {
    "demo": (
        "demo [-h] [-o OUT] [--seed SEED] [--epochs EPOCHS]",
        {"out": Path("runs/demo"), "seed": 0, "epochs": None},
    ),
    "sample run": (
        "sample [-h] [-n COUNT] [-o OUTPUT] [--scatter | --no-scatter] [--round | --no-round] [--seed SEED] RUN",
        {"folder": RUN, "count": 1000, "output": None, "scatter": None, "round": None, "seed": 0},
    ),
    "score run data": (
        "score [-h] [-o OUTPUT] [--id COLUMN,…] [--explain] [--coordinates] [--drop-invalid] "
        "[--resume | --restart] [--engine {ray}] [--address ADDRESS] [--workers N] RUN DATA",
        {
            **{"folder": RUN, "data": "data", "output": None, "id": "", "explain": False},
            **{"coordinates": False, "drop_invalid": False, "resume": False, "restart": False},
            **{"engine": None, "address": None, "workers": None},
        },
    ),
    "show run": ("show [-h] [--again] RUN", {"folder": RUN, "again": False}),
    "evaluate run": (
        "evaluate [-h] [-n SAMPLES] [--rows ROWS] [--seed SEED] [--skip-fid] [--network FILE] [--network-sha256 HEX] RUN",
        {"folder": RUN, "samples": None, "rows": 50_000, "seed": 0, "skip_fid": False, **NETWORK},
    ),
    "ood run --against x": (
        "ood [-h] --against DATA [-n COUNT] [-o FOLDER] [--seed SEED] [--drop-invalid] RUN",
        {"folder": RUN, "against": "x", "count": 10_000, "output": None, "seed": 0, "drop_invalid": False},
    ),
    "plot run": ("plot [-h] RUN", {"folder": RUN}),
    "report run": ("report [-h] [-o OUTPUT] RUN", {"folder": RUN, "output": None}),
    "reproduce all": (
        "reproduce [-h] [--grid] [--sets NAME,…] [--methods NAME,…] [--published] [--seeds SEEDS] [--epochs EPOCHS] "
        "[-o OUT] [--jobs JOBS] [-n SAMPLES] [--published-samples N] [--skip-fid] [--no-square] [--network FILE] "
        "[--network-sha256 HEX] WHAT",
        {
            **{"what": "all", "grid": False, "sets": None, "methods": None, "published": False, "seeds": None},
            **{"epochs": None, "out": Path("runs/reproduce"), "jobs": None, "samples": None},
            **{"published_samples": None, "skip_fid": False, "no_square": False, **NETWORK},
        },
    ),
    "dimension data": (
        "dimension [-h] [--columns NAME,…] [--exclude NAME,…] [--drop-invalid] [--seed SEED] [-o OUTPUT] DATA",
        {
            **{"data": "data", "columns": None, "exclude": None, "drop_invalid": False, "seed": 0},
            "output": Path("dimension.png"),
        },
    ),
    "sweep s.toml --over seed=0..1": (
        "sweep SETTINGS --over NAME=VALUES [--over NAME=VALUES …] [--out FOLDER] [options]",
        {
            **{"settings": "s.toml", "over": ["seed=0..1"], "preset": None, "out": None, "jobs": None},
            **{"launcher": "local", "address": None},
        },
    ),
    "completion bash": ("completion [-h] SHELL", {"shell": "bash"}),
    "data list": ("data [-h] WHAT ...", {"what": "list"}),
    "data get mnist": ("data [-h] WHAT ...", {"what": "get", "name": "mnist"}),
    "bench volume": (
        "bench [-h] WHAT ...",
        {
            **{"what": "volume", "cases": ["circle", "power", "gas", "hepmass", "miniboone"], "repeats": 5},
            **{"no_memory": False, "output": None},
        },
    ),
    "fit": (
        "fit DATA [--latent-dim D] [--out RUN] [options] rnf fit --resume RUN",
        {
            **{"out": None, "config": None, "preset": None, "resume": None},
            **{"overwrite": False, "quiet": False, "tensorboard": False},
        },
    ),
}


def test_every_command_is_here():
    assert {words.split()[0] for words in ARGUMENTS} == set(COMMANDS)


def parsers(parser):
    """A parser and those of its commands, without those of commands that were not asked for."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from parsers(one)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_help_that_shows_its_default(name):
    whole = command_line([name])
    (commands,) = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    assert [(one.dest, one.help) for one in commands._choices_actions] == [(n, c.help) for n, c in COMMANDS.items()]
    for parser in parsers(commands.choices[name]):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert all(one.help for one in action._choices_actions)
                assert [one.dest for one in action._choices_actions] == list(action.choices)
                continue
            assert action.help, action
            if isinstance(action.default, int | Path) and not isinstance(action.default, bool):
                assert f"(default: {action.default})" in action.help % vars(action), action
    assert commands.choices[name].description[1:] == f"{COMMANDS[name].help[1:]}."
    assert commands.choices[name].description[0].isupper()


@pytest.mark.parametrize("words", ARGUMENTS)
def test_usage_and_defaults(words):
    usage, values = ARGUMENTS[words]
    parsed = command_line(words.split()[:1]).parse_args(words.split())
    assert " ".join(parsed.parser.format_usage().split()) == f"usage: rnf {usage}"
    given = vars(parsed)
    assert {name: given[name] for name in given if name not in ("command", "run", "parser")} == values


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        *(
            ("sample run -n 7", "count", 7),
            ("sample run --count 7", "count", 7),
            ("sample run -o a.npy", "output", "a.npy"),
        ),
        *(("sample run --no-scatter", "scatter", False), ("sample run --scatter", "scatter", True)),
        ("sample run --no-round", "round", False),
        *(("score run x -o a.csv", "output", "a.csv"), ("score run x --id a,b", "id", "a,b")),
        *(("score run x --explain", "explain", True), ("score run x --coordinates", "coordinates", True)),
        *(("score run x --drop-invalid", "drop_invalid", True), ("show run --again", "again", True)),
        *(
            ("evaluate run -n 9", "samples", 9),
            ("evaluate run --rows 9", "rows", 9),
            ("evaluate run --seed 9", "seed", 9),
        ),
        *(("evaluate run --skip-fid", "skip_fid", True), ("evaluate run --network a.pt", "network", "a.pt")),
        *(("ood run --against x -n 9", "count", 9), ("ood run --against x -o f", "output", "f")),
        *(("reproduce all --grid", "grid", True), ("reproduce all --seeds 2", "seeds", "2")),
        *(("reproduce all --epochs 2", "epochs", 2), ("reproduce all --jobs 2", "jobs", 2)),
        *(("reproduce all --published", "published", True), ("reproduce all --no-square", "no_square", True)),
        *(("reproduce all --published-samples 2", "published_samples", 2), ("reproduce all -n 2", "samples", 2)),
        *(("reproduce all -o f", "out", "f"), ("reproduce all --skip-fid", "skip_fid", True)),
        *(("dimension x -o f.png", "output", "f.png"), ("demo --epochs 3", "epochs", 3), ("demo -o f", "out", "f")),
        *(
            ("bench volume --repeats 2", "repeats", 2),
            ("bench volume --cases mnist cifar10", "cases", ["mnist", "cifar10"]),
        ),
        *(("bench volume --no-memory", "no_memory", True), ("bench volume -o f.json", "output", "f.json")),
        *(
            ("fit x -q", "quiet", True),
            ("fit x --overwrite", "overwrite", True),
            ("fit x --tensorboard", "tensorboard", True),
        ),
        *(("fit x -o f", "out", "f"), ("fit x --no-standardise", "standardise", False), ("fit x", "data", "x")),
    ],
)
def test_values(words, name, value):
    found = getattr(command_line(words.split()[:1]).parse_args(words.split()), name)
    if isinstance(value, str) and name in ("output", "out", "network") and not words.startswith("fit"):
        assert found == Path(value)
    else:
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize("largest", [2**63 - 1, -(2**63 - 1)])
def test_whole_numbers_up_to_what_torch_counts_to(largest):
    parse = command_line(["sample"]).parse_args
    assert parse(["sample", "run", f"--count={largest}"]).count == largest
    with pytest.raises(ValueError, match="expected a whole number below 2⁶³"):
        parse(["sample", "run", f"--count={largest + (1 if largest > 0 else -1)}"])


def test_seeds_from_zero():
    parse = command_line(["sample"]).parse_args
    assert parse(["sample", "run", f"--seed={2**63 - 1}"]).seed == 2**63 - 1
    with pytest.raises(ValueError, match="expected a seed from 0"):
        parse(["sample", "run", "--seed=-1"])
    with pytest.raises(ValueError, match="invalid int value: 'x'"):
        parse(["sample", "run", "--seed=x"])
