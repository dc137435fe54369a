"""The table of commands."""

import ctypes
import re
import resource
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import rectangular_flows as rnf
from rectangular_flows.cli import COMMANDS, Command, _keep_freed_memory, main
from rectangular_flows.training import distributed
from rectangular_flows.training.signals import Interrupted
from tests.cli.command import ENVIRONMENT, complaint, run, run_apart


def test_version():
    done = run_apart("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"rnf {rnf.__version__}"


def test_help_lists_the_commands():
    done = run("--help")
    assert done.returncode == 0
    assert re.findall(r"^    (\w+)\b", done.stdout, re.M) == list(COMMANDS)
    assert run().stdout == done.stdout


def test_help_takes_little_time_and_imports_no_command():
    code = """
import sys
from rectangular_flows.cli import COMMANDS, main
try:
    main(["--help"])
except SystemExit as stop:
    assert stop.code == 0
print(*(name for name in sys.modules if name.startswith("rectangular_flows.")), file=sys.stderr)
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, timeout=60, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    names = ("_lazy", "_version", "cli", "spelling")
    assert set(done.stderr.decode().split()) <= {f"rectangular_flows.{name}" for name in names}
    assert done.returncode == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3


def test_help_of_commands_imports_no_torch():
    code = """
import sys
from rectangular_flows.cli import COMMANDS, main
for flags in (["--version"], ["data", "list"], ["fit", "--list-presets"], *([name, "--help"] for name in COMMANDS)):
    try:
        main(flags)
    except SystemExit as stop:
        assert stop.code == 0, flags
    assert "torch" not in sys.modules, flags
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_is_one_entry(monkeypatch, tmp_path):
    (tmp_path / "shout.py").write_text(
        "def add_arguments(parser):\n    parser.add_argument('word')\n\n"
        "def run(arguments):\n    print(arguments.word.upper())\n    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "shout", Command("say it loud", "shout"))
    done = run("shout", "hello")
    assert (done.returncode, done.stdout) == (3, "HELLO\n")
    assert re.search(r"^    shout +say it loud$", run("--help").stdout, re.M)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["benhc"], "COMMAND: expected one of demo, fit, .*; got benhc. Did you mean 'bench'?"),
        (["sample", "run", "--cuont", "3"], "unknown option --cuont. Did you mean '--count'? See rnf sample --help"),
        (["sample", "run", "other"], "'other' is one too many. .* see rnf sample --help"),
        (["sample", "run", "-n", "many"], "argument -n/--count: invalid int value: 'many' (see rnf sample --help)"),
        (["sample"], "the following arguments are required: RUN (see rnf sample --help)"),
    ],
)
def test_mistakes(arguments, message):
    assert re.fullmatch(f"rnf: .*{re.escape(message).replace(re.escape('.*'), '.*')}.*", complaint(*arguments))


def test_memory_is_kept_between_steps(monkeypatch):
    """M_TRIM_THRESHOLD is −1 and M_MMAP_THRESHOLD −3 in malloc.h."""
    calls, opened = [], []
    library = SimpleNamespace(mallopt=lambda *given: calls.append(given))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: opened.append(name) or library)
    monkeypatch.setattr(sys, "platform", "linux")
    _keep_freed_memory()
    assert (calls, opened) == ([(-1, 2_147_483_647), (-3, 33_554_432)], [None])
    library = SimpleNamespace()  # elsewhere than on glibc
    _keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    _keep_freed_memory()
    assert len(calls) == 2
    assert len(opened) == 2


def test_public_names_are_there():
    assert set(dir(rnf)) == set(rnf.__all__)
    assert all(getattr(rnf, name) is not None for name in rnf.__all__)


@pytest.mark.parametrize(
    ("error", "code", "alike"),
    [
        (Interrupted("stopped in epoch 3", signal.SIGTERM), 143, True),
        (KeyboardInterrupt(), 130, True),
        (ValueError("no such column"), 2, False),
        (rnf.errors.NonFiniteError("the loss is nan"), 1, True),
    ],
)
@pytest.mark.parametrize("rank", [None, "0", "1"])
def test_of_several_processes_the_first_speaks_for_all_that_say_the_same(monkeypatch, capsys, error, code, alike, rank):
    def fails(_):
        raise error

    monkeypatch.setattr("rectangular_flows.cli._run", fails)
    monkeypatch.setattr(distributed, "joined", lambda: True)
    if rank is not None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
        monkeypatch.setenv("RANK", rank)
    assert main([]) == code
    text = str(error) or "stopped"
    expected = f"rnf: {text}\n" if rank != "1" else "" if alike else f"rnf: process 1: {text}\n"
    assert capsys.readouterr().err == expected
