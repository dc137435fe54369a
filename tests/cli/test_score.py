import re

import numpy as np

from rectangular_flows import SavedRun
from rectangular_flows.data.tables import read_table


def test_the_summary_is_of_what_was_written(here, rnf):
    said = rnf("score", "table-run", "table.csv", "-o", "new/scores.npz", "--coordinates")
    table = read_table("new/scores.npz")
    assert table.columns == ("log_density", "reconstruction_error", "outlier_score", "p_value", "z1")  # of version 0.1
    density, error = table.values[:, :2].mean(axis=0)
    assert said == (
        f"120 rows in new/scores.npz: mean log-density {density:.4g}, mean reconstruction error {error:.4g}\n"
    )
    assert (table.values[:, 2] > 0).all()
    assert ((table.values[:, 3] > 0) & (table.values[:, 3] <= 1)).all()


def test_rows_that_are_left_out_have_gaps_in_their_numbers(here, rnf):
    lines = (here / "table.csv").read_text().splitlines()
    (here / "gaps.csv").write_text("\n".join([*lines[:3], "1,nan,2", *lines[3:]]))
    assert "weight" in rnf("score", "table-run", "gaps.csv", code=2)
    said = rnf("score", "table-run", "gaps.csv", "--drop-invalid")
    assert "note: 1 of 121 rows have missing or infinite values and were left out; the column 'row'" in said
    table = read_table("scores.csv")
    assert table.columns[0] == "row"
    rows = table.values[:, 0]
    np.testing.assert_array_equal(rows, np.delete(np.arange(1, 122), 2))


def test_an_unfinished_run_has_no_outlier_score(here, rnf):
    said = rnf("score", "stopped-run", "table.csv")
    assert "note: no outlier_score, which needs a calibration; the run was not finished: rnf fit --resume" in said
    assert read_table("scores.csv").columns == ("log_density", "reconstruction_error")


def test_rows_far_away_are_scored_and_counted(here, rnf):
    lines = (here / "table.csv").read_text().splitlines()
    (here / "far.csv").write_text("\n".join([*lines[:3], "1e30,1e30,1e30"]))
    assert "note: 1 rows have no finite log-density" in rnf("score", "table-run", "far.csv")
    assert re.search(r"-inf,[^,]+,inf,0\.0[^,]+$", (here / "scores.csv").read_text().strip())


def test_images_are_scored_in_the_order_of_the_file(here, rnf):
    rnf("score", "image-run", "images.npy", "--coordinates")
    run = SavedRun("image-run")
    expected = run.flow.encode(run.rows("images.npy")).detach().numpy()
    table = read_table("scores.csv")
    np.testing.assert_allclose(table.values[:, -2:], expected, rtol=1e-4, atol=1e-5)
