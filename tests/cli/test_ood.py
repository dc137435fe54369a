import json

import numpy as np
import pytest

from rectangular_flows import SavedRun
from rectangular_flows.evaluation.ood import judge_run


@pytest.fixture
def other(here):
    lines = (here / "table.csv").read_text().splitlines()
    rows = np.array([line.split(",") for line in lines[1:]], dtype=float)
    np.savetxt("other.csv", rows[:, ::-1] * [1, 30, 1.01], delimiter=",", header="age,weight,height", comments="")
    return "other.csv"


def test_the_table_shows_what_is_kept(here, other, rnf, rows_of, check_layout):
    said = rnf("ood", "table-run", "--against", other)
    found = json.loads((here / "table-run" / "ood-other" / "ood.json").read_text())
    assert "table (inside, 12 test rows) against other (outside, 120 rows)" in said
    rows = rows_of(said)
    assert rows["score"] == ["AUROC", "AUPR", "FPR at 95 %", "stump accuracy", "inside kept", "outside caught"]
    for name, one in found["scores"].items():
        shares = (one["fpr95"], one["accuracy"], one["inside_kept"], one["outside_caught"])
        expected = [f"{one['auroc']:.3f}", f"{one['aupr']:.3f}", *(f"{share:.1%}" for share in shares)]
        assert rows[one["name"]] == expected, name
    assert rows["chance"] == ["0.500", "0.091", "95.0%", "50.0%", "95.0%", "5.0%"]
    check_layout(said, *rows["score"])
    own = {one["name"]: one["auroc"] for name, one in found["scores"].items() if name != "pca"}
    best = max(own, key=own.get)
    assert f"the model's best score, {best}, reaches {own[best]:.3f}" in said
    assert f"reaches AUROC {found['scores']['pca']['auroc']:.3f}; the model's best score" in said
    assert said.splitlines()[-2:] == [
        "numbers: table-run/ood-other/ood.json",
        "figure:  table-run/ood-other/ood.png",
    ]


def test_the_figure_shows_the_judged_values(here, other, rnf, monkeypatch):
    from rectangular_flows.plots import detection

    drawn = {}
    draw = detection.draw_detection
    monkeypatch.setattr(
        detection, "draw_detection", lambda panels, *names: drawn.update(panels) or draw(panels, *names)
    )
    rnf("ood", "table-run", "--against", other, "-o", "told", "--seed", 1, "-n", 50)
    judged = judge_run(SavedRun("table-run"), other, 50, seed=1)
    assert list(drawn) == [one.score.label for one in judged.scores.values()]
    for one in judged.scores.values():
        shown = drawn[one.score.label]
        for values, expected in (
            (shown.inside_train, one.train),
            (shown.inside_test, one.test),
            (shown.outside_test, one.outside),
        ):
            np.testing.assert_allclose(values, expected)
        assert shown.threshold == pytest.approx(one.threshold)
        assert shown.unit == one.score.unit
    assert (here / "told" / "ood.json").exists()
