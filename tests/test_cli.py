import json
import re
import subprocess
import sys

import rectangular_flows as rnf


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "rectangular_flows.cli", *arguments], capture_output=True, text=True, timeout=120
    )


def test_version():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"rnf {rnf.__version__}"


def test_help_lists_the_commands():
    done = run("--help")
    assert done.returncode == 0
    assert re.search(r"^\s+bench\b", done.stdout, re.M)


def test_help_and_version_import_no_torch():
    code = """
import sys
from rectangular_flows.cli import main
for flag in ("--help", "--version"):
    try:
        main([flag])
    except SystemExit as stop:
        assert stop.code == 0
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_public_names_are_there():
    assert set(dir(rnf)) == set(rnf.__all__)
    assert all(getattr(rnf, name) is not None for name in rnf.__all__)


def test_unknown_command_is_exit_code_2():
    done = run("benhc")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "bench" in done.stderr


def test_demo_writes_the_figure(tmp_path):
    done = run("demo", "--epochs", "2", "--out", str(tmp_path / "new" / "demo"))
    assert done.returncode == 0, done.stderr
    assert "circle.png" in done.stdout
    assert (tmp_path / "new" / "demo" / "circle.png").stat().st_size > 10_000
    results = json.loads((tmp_path / "new" / "demo" / "circle.json").read_text())["results"]
    assert set(results) == {"Maximum likelihood", "Two-step"}


def test_demo_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("demo", "--out", str(tmp_path / "file" / "demo"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
