import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.cli import main
from rectangular_flows.runs.saved import ChangedDataWarning, SavedRun
from tests.browser import opened_in_a_browser

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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = helix(folder / "helix.csv")
    done = run(
        "fit", data, "--latent-dim", 1, "--epochs", 4, "--layers", 2, "--learning-rate", 0.01, "--out", folder / "run"
    )
    assert done.returncode == 0, done.stderr
    assert "rnf sample" in done.stdout
    assert "epoch 4/4" in done.stdout
    return folder


def test_version():
    done = run_apart("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"rnf {rnf.__version__}"


def test_help_lists_the_commands():
    done = run("--help")
    assert done.returncode == 0
    for command in ("demo", "fit", "sample", "score", "evaluate", "dimension", "report", "reproduce", "data", "bench"):
        assert re.search(rf"^\s+{command}\b", done.stdout, re.M), command


def test_help_imports_no_torch():
    code = """
import sys
from rectangular_flows.cli import main
for flags in (["--help"], ["--version"], ["fit", "--help"], ["data", "list"], ["sample", "--help"]):
    try:
        main(flags)
    except SystemExit as stop:
        assert stop.code == 0, flags
    assert "torch" not in sys.modules, flags
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_help_of_fit_has_every_setting():
    from rectangular_flows.settings import all_settings

    text = run("fit", "--help").stdout
    for name in all_settings():
        assert name == "data" or f"--{name.replace('_', '-')}" in text, name


def test_public_names_are_there():
    assert set(dir(rnf)) == set(rnf.__all__)
    assert all(getattr(rnf, name) is not None for name in rnf.__all__)


def test_completion(tmp_path):
    script = tmp_path / "rnf.sh"
    script.write_text(run("completion", "bash").stdout)
    line = 'source {}; COMP_WORDS=({}); COMP_CWORD={}; _rnf; echo "${{COMPREPLY[@]}}"'
    for words, position, expected in (
        ("rnf re", 1, "report reproduce"),
        ("rnf fit --method ''", 3, "ml two-step"),
        ("rnf fit --volu", 2, "--volume --volume-fraction"),
        ("rnf reproduce ci", 2, "circle"),
    ):
        done = subprocess.run(
            ["bash", "-c", line.format(script, words, position)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_unknown_command():
    assert "Did you mean 'bench'" in refused("benhc")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{data}", "--latent-dim", "1", "--epohcs", "3"], "Did you mean '--epochs'"),
        (["fit", "{data}", "--latent-dim", "1", "--beta", "-3"], "positive beta; got -3"),
        (["fit", "{data}", "--latent-dim", "3"], "latent"),
        (["fit", "{data}"], "--latent-dim"),
        (["fit"], "no data"),
        (["fit", "nowhere.csv", "--latent-dim", "1"], "nowhere.csv"),
        (["fit", "{data}", "--latent-dim", "1", "--columns", "east,nroth"], "north"),
        (["fit", "{data}", "--latent-dim", "1", "--device", "abacus"], "abacus"),
        (["fit", "--resume", "nowhere"], "nowhere"),
        (["sample", "nowhere"], "no model in nowhere"),
        (["score", "{run}", "nowhere.csv"], "nowhere.csv"),
        (["sample", "{run}", "-n", "0"], "at least one sample"),
        (["sample", "{run}", "-o", "samples.doc"], "doc"),
        (["report", "nowhere"], "no model in nowhere"),
        (["reproduce", "circle", "--seeds", "0"], "at least one seed"),
        (["data", "get", "powr"], "Did you mean 'power'"),
        (["fit", "--resume", "{run}", "--epochs", "9"], "leave out --epochs"),
        (["fit", "--resume", "{run}", "--preset", "circle"], "leave out --preset"),
        (["fit", "{data}", "--latent-dim", "1", "--seed", "-1"], "seed from 0"),
        (["evaluate", "{run}", "--rows", "-1"], "positive number of rows; got -1"),
    ],
)
def test_mistakes_are_told(trained, tmp_path, arguments, message):
    places = {"data": trained / "helix.csv", "run": trained / "run"}
    assert message in refused(*(a.format(**places) for a in arguments), cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_bad_data_are_told(tmp_path):
    lines = helix(tmp_path / "good.csv").read_text().splitlines()
    (tmp_path / "nan.csv").write_text("\n".join([*lines[:5], "1,nan,2", *lines[5:]]))
    message = refused("fit", "nan.csv", "--latent-dim", 1, cwd=tmp_path)
    assert "north" in message
    assert "--drop-invalid" in message
    (tmp_path / "ragged.csv").write_text("\n".join([*lines[:5], "1,2", *lines[5:]]))
    assert re.search(r"line 6.*3.*2", refused("fit", "ragged.csv", "--latent-dim", 1, cwd=tmp_path))
    (tmp_path / "text.csv").write_text("\n".join([*lines[:5], "1,far,2", *lines[5:]]))
    assert "far" in refused("fit", "text.csv", "--latent-dim", 1, cwd=tmp_path)
    assert not (tmp_path / "runs").exists()
    done = run("fit", "nan.csv", "--latent-dim", 1, "--drop-invalid", "--epochs", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 rows with missing or infinite values were dropped" in done.stdout
    assert (tmp_path / "runs" / "nan-d1" / "model.json").exists()
    done = run("score", "runs/nan-d1", "nan.csv", "--drop-invalid", cwd=tmp_path)
    assert "1 of 301 rows have missing" in done.stdout
    assert "the column 'row' says which" in done.stdout
    rows = [line.split(",")[0] for line in (tmp_path / "scores.csv").read_text().splitlines()]
    assert rows[1:6] == ["1", "2", "3", "4", "6"]
    assert rows[0] == "row"


def test_a_changed_file_is_told(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    data = helix(tmp_path / "helix.csv")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(trained / "helix.csv"), str(data)))
    assert len(SavedRun(tmp_path / "run").data.test) == 30  # the same rows in another place
    helix(data, rows=400)
    with pytest.warns(ChangedDataWarning, match=r"helix\.csv' has changed since .* was trained on it"):
        assert len(SavedRun(tmp_path / "run").data.test) == 40


def test_columns_that_do_not_match_are_told(trained, tmp_path):
    helix(tmp_path / "two.csv")
    text = (tmp_path / "two.csv").read_text().replace("up", "height")
    (tmp_path / "two.csv").write_text(text)
    message = refused("score", trained / "run", "two.csv", cwd=tmp_path)
    assert "up" in message
    assert "height" in message
    assert not (tmp_path / "scores.csv").exists()


def test_samples_and_scores(trained, tmp_path):
    assert run("sample", trained / "run", "-n", 20, "-o", "a.csv", cwd=tmp_path).returncode == 0
    assert run("sample", trained / "run", "-n", 20, "-o", "b.csv", cwd=tmp_path).returncode == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert list(rows[0]) == ["east", "north", "up"]
    assert len(rows) == 20
    shuffled = tmp_path / "shuffled.csv"  # columns are found by name
    shuffled.write_text("\n".join(["up,east,north", *(f"{r['up']},{r['east']},{r['north']}" for r in rows)]))
    assert run("score", trained / "run", shuffled, "-o", "scores.csv", "--coordinates", cwd=tmp_path).returncode == 0
    scores = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert list(scores[0]) == ["log_density", "reconstruction_error", "outlier_score", "z1"]
    flow = rnf.load(trained / "run")
    x = torch.tensor([[float(v) for v in row.values()] for row in rows])
    expected = flow.log_prob(x).tolist()
    assert [float(row["log_density"]) for row in scores] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_dimension_and_its_use(trained, tmp_path):
    done = run("dimension", trained / "helix.csv", "-o", "new/picture.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--latent-dim 1 " in done.stdout
    assert (tmp_path / "new" / "picture.png").stat().st_size > 10_000
    options = ["--latent-dim", "auto", "--epochs", 1, "--layers", 2, "--out", "run"]
    done = run("fit", trained / "helix.csv", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "latent dimension 1" in done.stdout
    assert "latent_dim = 1" in (tmp_path / "run" / "config.toml").read_text()
    assert "nroth" in refused("dimension", trained / "helix.csv", "--columns", "east,nroth", cwd=tmp_path)


def test_evaluation_pictures_and_report(trained):
    folder = trained / "run"
    done = run("evaluate", folder, "-n", 200)
    assert done.returncode == 0, done.stderr
    figures = json.loads((folder / "evaluation.json").read_text())
    assert figures["test_rows"] == 30
    assert np.isfinite([v for v in figures.values() if isinstance(v, float)]).all()
    assert run("plot", folder).returncode == 0
    assert {path.name for path in (folder / "figures").iterdir()} == {"pairs.png", "manifold.png"}
    assert run("report", folder).returncode == 0
    text = (folder / "report.html").read_text()
    assert "data:image/png" in text
    assert "latent_dim = 1" in text


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nothing disturbs, and the arguments that made it."""
    folder = tmp_path_factory.mktemp("straight")
    options = ["--latent-dim", 1, "--epochs", 15, "--layers", 2, "--volume", "stochastic"]
    arguments = ["fit", helix(folder / "helix.csv", rows=2000), *options]
    done = run_apart(*arguments, "--out", folder / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return folder / "run", arguments


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed_is_as_if_never_stopped(straight, tmp_path, number):
    undisturbed, arguments = straight
    process = start(*arguments, "--out", tmp_path / "stopped", cwd=tmp_path)
    history = tmp_path / "stopped" / "metrics.jsonl"
    for _ in range(600):
        if history.exists() and len(history.read_text().splitlines()) > 2:
            break
        time.sleep(0.1)
    sent = time.perf_counter()
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert time.perf_counter() - sent < 10
    assert process.returncode == 128 + number, error
    assert "Traceback" not in error
    how = re.search(r"rnf (fit --resume \S+)", error)
    assert how, error
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    resumed = run_apart(*how[1].split(), cwd=elsewhere)  # from another folder, with no other argument
    assert resumed.returncode == 0, resumed.stderr
    for name in ("model.safetensors", "model.json"):
        same = (tmp_path / "stopped" / name).read_bytes() == (undisturbed / name).read_bytes()
        assert same, name  # bytes themselves would take minutes to be shown


def test_a_run_that_breaks_down_says_what_to_try(trained, tmp_path):
    arguments = ["fit", trained / "helix.csv", "--latent-dim", 1, "--learning-rate", 1e4, "--scale", "exp"]
    message = refused(*arguments, cwd=tmp_path, code=1)
    assert "learning_rate" in message
    assert rnf.load(tmp_path / "runs" / "helix-d1").latent_dim == 1


def test_text_columns_that_the_model_does_not_use(trained, tmp_path):
    lines = (trained / "helix.csv").read_text().splitlines()
    text = "\n".join([f"name,{lines[0]}", *(f"row {i},{line}" for i, line in enumerate(lines[1:]))])
    (tmp_path / "named.csv").write_text(text)
    options = ["--exclude", "name", "--validation-data", "named.csv", "--epochs", 1, "--layers", 2, "--out", "run"]
    done = run("fit", "named.csv", "--latent-dim", 2, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert run("score", "run", "named.csv", cwd=tmp_path).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run("evaluate", "../run", "-n", 100, cwd=elsewhere).returncode == 0
    calibration = (tmp_path / "run" / "calibration.safetensors").stat().st_mtime_ns
    again = ["fit", "named.csv", "--latent-dim", 1, *options, "--overwrite", "--anneal", "5,9"]
    done = run(*again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no epoch was judged" in done.stdout
    assert not (tmp_path / "run" / "evaluation.json").exists()
    assert (tmp_path / "run" / "calibration.safetensors").stat().st_mtime_ns > calibration


def test_an_old_run_is_not_overwritten(trained):
    before = (trained / "run" / "model.safetensors").read_bytes()
    arguments = ["fit", trained / "helix.csv", "--latent-dim", 1, "--epochs", 1, "--out", trained / "run"]
    assert "--resume" in refused(*arguments)
    assert (trained / "run" / "model.safetensors").read_bytes() == before


def test_a_runs_own_configuration_can_be_used_again(trained, tmp_path):
    arguments = ["fit", "--config", trained / "run" / "config.toml", "--epochs", 2, "--out", tmp_path / "again"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert rnf.load(tmp_path / "again").ambient_dim == 3


def test_demo(tmp_path):
    done = run("demo", "--epochs", 3, "--out", tmp_path / "new" / "demo")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "new" / "demo"
    for name in ("circle.png", "report.html"):
        assert str(folder / name) in done.stdout
        assert (folder / name).stat().st_size > 10_000
    result = json.loads((folder / "maximum-likelihood" / "circle.json").read_text())
    assert result["mass"] == pytest.approx(1, abs=0.01)
    assert rnf.load(folder / "two-step").latent_dim == 1
    assert "A density on a circle" in opened_in_a_browser(folder / "report.html", tmp_path)


def test_demo_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    refused("demo", "--out", tmp_path / "file" / "demo")
