import warnings
from pathlib import Path

import torch

import rectangular_flows
from tests.cli.command import run


def test_one_page_and_every_figure_of_it(here, rnf):
    assert rnf("plot", "table-run") == "table-run/figures/pairs.png\ntable-run/figures/manifold.png\n"
    assert all(path.read_bytes()[1:4] == b"PNG" for path in Path("table-run/figures").iterdir())
    assert rnf("report", "table-run") == "report: table-run/report.html\n"
    page = Path("table-run/report.html").read_text()
    assert page.count("data:image/png") == 2
    assert "latent_dim = 1" in page
    assert rnf("report", "table-run", "-o", "elsewhere.html") == "report: elsewhere.html\n"


def test_a_run_made_in_python_does_not_know_its_data(tmp_path):
    flow = rectangular_flows.RectangularFlow(
        rectangular_flows.flows.RealNVP(2, layers=1), rectangular_flows.flows.Identity(1)
    )
    config = rectangular_flows.TrainingConfig(epochs=1, batch_size=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rectangular_flows.fit(flow, torch.randn(40, 2), config, out=tmp_path / "mine")
    for command in ("evaluate", "report", "plot"):
        done = run(command, "mine", cwd=tmp_path)
        assert done.returncode == 2
        assert "mine does not say what it was trained on" in done.stderr
        assert "rnf score mine DATA" in done.stderr
