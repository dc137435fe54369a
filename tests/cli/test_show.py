"""``rnf show``, and the verdict at the end of ``rnf fit`` and in ``rnf evaluate``: the same everywhere."""

import json

import numpy as np
import pytest

from rectangular_flows import SavedRun, __version__
from rectangular_flows.evaluation.run_verdict import judge
from rectangular_flows.evaluation.verdict import Verdict
from rectangular_flows.report.verdict import verdict_card, verdict_numbers
from tests.cli.command import run


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with a run on a table with a name that looks like markup, and what was said."""
    folder = tmp_path_factory.mktemp("verdict")
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 3)) * [1, 1, 0.1]
    np.savetxt(folder / "x.csv", rows, delimiter=",", header="a,*b*,<c>", comments="")
    done = run("fit", "x.csv", "--latent-dim", 2, "--epochs", 2, "-o", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_fit_evaluate_and_show_say_the_same(fitted):
    folder, said = fitted
    saved = SavedRun(folder / "out")
    verdict = judge(saved.flow, saved.data)
    assert verdict.held_out == 30
    text = str(verdict)
    assert said.endswith(f"\n\n{text}\n")
    assert Verdict.from_numbers(json.loads((folder / "out/verdict.json").read_text())) == verdict
    shown = run("show", "out", cwd=folder).stdout
    assert shown.startswith("out: a manifold of dimension 2 in 3 columns, float32\ntrained on ")
    assert "x.csv, 240 rows; 2 epochs in " in shown
    assert shown.splitlines()[1].endswith(f"; rectangular-flows {__version__}")
    assert "columns: a, *b*, <c>\nsettings: latent_dim = 2, epochs = 2 (the rest: defaults)\n\n" in shown
    assert shown.endswith(f"\n\n{text}\n")
    evaluated = run("evaluate", "out", "-n", 30, cwd=folder).stdout
    assert text in evaluated
    assert json.loads((folder / "out/evaluation.json").read_text())["verdict"] == verdict.numbers()


def test_show_takes_what_was_kept_unless_asked_again(fitted):
    folder, _ = fitted
    path = folder / "out/verdict.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "held_out": 12345}))
    assert "on 12,345 rows" in run("show", "out", cwd=folder).stdout
    assert "on 30 rows" in run("show", "out", "--again", cwd=folder).stdout
    assert path.read_text() == kept
    path.write_text(json.dumps({**json.loads(kept), "held_out": 12345}))
    assert "on 30 rows" in run("evaluate", "out", "-n", 30, cwd=folder).stdout  # which judges again, always
    assert path.read_text() == kept


def test_quiet_says_nothing(fitted):
    folder, _ = fitted
    done = run("fit", "x.csv", "--latent-dim", 2, "--epochs", 1, "-o", "quiet", "-q", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert not (folder / "quiet/verdict.json").exists()


def test_models_of_version_0_1(here, rnf):
    assert "Not judged: 12 rows were held out" in rnf("show", "table-run")
    assert "a saved estimator" in rnf("show", "estimator")
    assert "No verdict was saved with it" in rnf("show", "estimator")
    assert "Not judged" in rnf("show", "image-run")
    assert "nowhere" in rnf("show", "nowhere", code=2)


def test_the_card_and_the_table_of_the_report(fitted):
    folder, _ = fitted
    saved = SavedRun(folder / "out")
    verdict = judge(saved.flow, saved.data)
    (card,) = verdict_card(verdict).metrics
    assert card.good == verdict.good
    assert f"{card.value}: {card.note}".lower() == verdict.sentences.lower()
    (grid,) = verdict_numbers(verdict)
    assert len(grid.rows) == 10
    assert verdict_numbers(Verdict(1, 2, 30, 3)) == []
