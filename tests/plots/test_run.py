"""Which rows the figures of a run show."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from rectangular_flows import SavedRun
from rectangular_flows.plots import run as figures_of_a_run
from rectangular_flows.plots.run import draw_run
from tests.cli.conftest import here  # noqa: F401


@pytest.fixture
def drawn(here, monkeypatch):  # noqa: F811
    """The arguments of every function that draws."""
    found = {}

    def noting(name):
        def draw(*given, **options):
            found[name] = (*given, *options.values())
            return Figure()

        return draw

    for name in (
        "draw_pairs",
        "draw_manifold",
        "draw_samples",
        "draw_reconstructions",
        "draw_interpolations",
        "draw_latent_grid",
    ):
        monkeypatch.setattr(figures_of_a_run, name, noting(name))
    return found


def test_a_table_shows_test_rows_below_and_samples_above(drawn):
    run = SavedRun("table-run")
    assert [drawing.name for drawing in draw_run(run)] == ["pairs", "manifold"]
    rows, samples, columns = drawn["draw_pairs"]
    np.testing.assert_allclose(rows, run.data.test, rtol=1e-6)
    expected = run.flow.sample(len(rows), generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(samples, expected)
    assert columns == ("height", "weight", "age")
    assert drawn["draw_manifold"][0] is run.flow
    np.testing.assert_allclose(drawn["draw_manifold"][1], rows)


def test_images_show_projections_beside_images(drawn):
    run = SavedRun("image-run")  # with 6 test images, too few to show
    drawings = draw_run(run)
    assert [drawing.name for drawing in drawings] == ["samples", "reconstructions", "lines", "plane", "manifold"]
    assert {drawing.dpi for drawing in drawings} == {figures_of_a_run.DPI}
    train = torch.from_numpy(run.data.train[:30]).to(run.flow.dtype)
    shown, projected, errors, heading = drawn["draw_reconstructions"]
    torch.testing.assert_close(shown, train)
    torch.testing.assert_close(projected, run.flow.project(train).detach())
    np.testing.assert_allclose(errors, np.linalg.norm((shown - projected).flatten(1), axis=1), rtol=1e-4)
    assert heading == "Training images and their projections on the manifold"
    _, first, second, _ = drawn["draw_interpolations"]
    assert len(first) == len(second) == 8
    assert not (first == second).any()
