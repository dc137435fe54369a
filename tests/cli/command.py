"""Commands, run as a person runs them."""

import contextlib
import csv
import io
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from rectangular_flows import SavedRun
from rectangular_flows.cli import main

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def start(*arguments, cwd=None):
    command = [sys.executable, "-m", "rectangular_flows.cli", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=ENVIRONMENT)


def run_apart(*arguments, cwd=None):
    """A command in a process of its own, as a person runs it."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(*arguments, cwd=None):
    """The same here and now: a process of its own takes seconds to import what is imported already."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("COLUMNS", "120")
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")  # they are shown to people, not raised
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as stop:  # of --help and --version
            code = stop.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def refused(*arguments, cwd=None, code=2):
    """The message of a command that must fail as a person would want it to."""
    done = run_apart(*arguments, cwd=cwd)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    *notes, message = done.stderr.splitlines()
    assert message.startswith("rnf: ")
    assert all(note.startswith("rnf: note: ") for note in notes)
    return message


def helix(path, rows=300, seed=0):
    angle = np.random.default_rng(seed).normal(size=rows)
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["east", "north", "up"])
        writer.writerows(np.stack([np.cos(angle), np.sin(angle), 0.2 * angle], 1).tolist())
    return path


def complaint(*arguments, cwd=None, code=2):
    """The message of a command that must fail, here and now."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    (message,) = done.stderr.splitlines()
    assert message.startswith("rnf: ")
    return message


def resumed_alike(folder, copy):
    """Whether a finished run whose model is lost is resumed to the same weights."""
    shutil.copytree(folder, copy)
    (copy / "model.safetensors").unlink()
    done = run("fit", "--resume", copy)
    assert done.returncode == 0, done.stderr
    before, after = (SavedRun(path).flow.state_dict() for path in (folder, copy))
    return before.keys() == after.keys() and all(torch.equal(before[name], value) for name, value in after.items())
