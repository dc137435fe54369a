import csv
import re

import numpy as np

from rectangular_flows import SavedRun
from rectangular_flows.data.tables import read_table


def test_the_summary_is_of_what_was_written(here, rnf):
    said = rnf("score", "table-run", "table.csv", "-o", "new/scores.npz", "--coordinates")
    table = read_table("new/scores.npz")
    assert table.columns == (
        "row",
        "log_density",
        "reconstruction_error",
        "outlier_score",
        "p_value",
        "z1",
    )  # of version 0.1
    density, error = table.values[:, 1:3].mean(axis=0)
    assert said == (
        f"120 rows in new/scores.npz: mean log-density {density:.4g}, mean reconstruction error {error:.4g}\n"
    )
    assert (table.values[:, 3] > 0).all()
    assert ((table.values[:, 4] > 0) & (table.values[:, 4] <= 1)).all()
    np.testing.assert_array_equal(table.values[:, 0], np.arange(1, 121))


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
    assert read_table("scores.csv").columns == ("row", "log_density", "reconstruction_error")


def test_rows_far_away_are_scored_and_counted(here, rnf):
    lines = (here / "table.csv").read_text().splitlines()
    (here / "far.csv").write_text("\n".join([*lines[:3], "1e30,1e30,1e30"]))
    assert "note: no finite log-density under the model: 1 row," in rnf("score", "table-run", "far.csv")
    assert re.search(r"-inf,[^,]+,inf,0\.0[^,]+$", (here / "scores.csv").read_text().strip())


def test_images_are_scored_in_the_order_of_the_file(here, rnf):
    rnf("score", "image-run", "images.npy", "--coordinates")
    run = SavedRun("image-run")
    expected = run.flow.encode(run.rows("images.npy")).detach().numpy()
    table = read_table("scores.csv")
    np.testing.assert_allclose(table.values[:, -2:], expected, rtol=1e-4, atol=1e-5)


def with_names(lines):
    """The table of the fixtures with two columns of text, one row of which has a cell missing."""
    names = ["sample,site", *(f'"mix, {i}",{"AB"[i % 2]}' for i in range(1, len(lines)))]
    cells = [*lines[:3], lines[3].split(",")[0] + ",," + lines[3].split(",")[2], *lines[4:]]
    return "\n".join(f"{name},{line}" for name, line in zip(names, cells, strict=True))


def test_identifiers_are_kept_in_order(here, rnf):
    (here / "named.csv").write_text(with_names((here / "table.csv").read_text().splitlines()))
    rnf("score", "table-run", "named.csv", "--drop-invalid", "--id", "sample,site")
    with open("scores.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:4] == ["sample", "site", "row", "log_density"]
    assert len(rows) == 119
    for sample, site, row, *_ in rows:
        assert (sample, site) == (f"mix, {row}", "AB"[int(row) % 2])
    assert "3" not in {row for _, _, row, *_ in rows}
    rnf("score", "table-run", "table.csv", "-o", "plain.csv")
    plain, kept = read_table("plain.csv"), np.array([row[2:] for row in rows], dtype=float)
    np.testing.assert_allclose(kept, np.delete(plain.values, 2, axis=0), rtol=1e-5)


def test_a_column_of_the_model_may_be_an_identifier(here, rnf):
    rnf("score", "table-run", "table.csv", "--id", "age")
    ages, table = read_table("table.csv", columns=["age"]), read_table("scores.csv")
    assert table.columns[:2] == ("age", "row")
    np.testing.assert_array_equal(table.values[:, 0], ages.values[:, 0])


def test_an_identifier_of_the_name_of_a_score(here, rnf):
    lines = (here / "table.csv").read_text().splitlines()
    text = "\n".join(["row," + lines[0], *(f"r{i},{line}" for i, line in enumerate(lines[1:]))])
    (here / "rows.csv").write_text(text)
    rnf("score", "table-run", "rows.csv", "--id", "row")
    assert (here / "scores.csv").read_text().startswith("id_row,row,log_density")


def test_mistakes_are_told(here, rnf):
    assert "has no column 'nam'" in rnf("score", "table-run", "table.csv", "--id", "nam", code=2)
    assert "--id is for tables" in rnf("score", "image-run", "images.npy", "--id", "a", code=2)
    said = rnf("score", "table-run", "table.csv", "--explain", code=2)
    assert "needs a density in all columns" in said
    assert "Train it again" in said
