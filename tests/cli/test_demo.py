import json

import pytest

import rectangular_flows as rnf
from tests.browser import opened_in_a_browser
from tests.cli.command import complaint, run


@pytest.mark.slow  # a minute; 'make demo' is the same job
def test_both_methods_a_figure_and_a_page(tmp_path):
    done = run("demo", "--epochs", 1, "--out", tmp_path / "new" / "demo")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "new" / "demo"
    for name in ("circle.png", "report.html"):
        assert str(folder / name) in done.stdout
    result = json.loads((folder / "maximum-likelihood" / "circle.json").read_text())
    assert result["mass"] == pytest.approx(1, abs=0.01)
    assert rnf.load(folder / "two-step").latent_dim == 1
    assert "A density on a circle" in opened_in_a_browser(folder / "report.html", tmp_path)


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    complaint("demo", "--out", tmp_path / "file" / "demo")
