import json

import pytest

from rectangular_flows.evaluation.evaluate import METRICS


def test_the_table_shows_what_is_kept(here, rnf, rows_of, check_layout):
    said = rnf("evaluate", "table-run", "-n", 50, "--seed", 2)
    numbers = json.loads((here / "table-run" / "evaluation.json").read_text())
    assert (numbers["test_rows"], numbers["samples"], numbers["seed"]) == (12, 50, 2)
    rows = rows_of(said)
    assert "table-run, 12 test rows" in said
    for name in ("negative_log_likelihood", "reconstruction_error"):
        assert rows[METRICS[name].label] == [f"{numbers[name]:.4g}"]
    for name in ("fid_like", "sliced_wasserstein", "c2st"):
        assert rows[METRICS[name].label] == [f"{numbers[name]:.4g}", f"{numbers[f'{name}_floor']:.4g}"]
    check_layout(said, "value", "real against real")
    assert not [label for label in rows if "circle" in label or "KID" in label]
    assert said.splitlines()[-1] == "numbers: table-run/evaluation.json"


def test_images_without_the_network(here, rnf, rows_of, monkeypatch, tmp_path):
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    monkeypatch.delenv("RNF_INCEPTION", raising=False)
    (here / "more.npy").write_bytes((here / "images.npy").read_bytes())
    assert "expected at least 10 test rows" in rnf("evaluate", "image-run", code=2)
    assert "at least 10 images to compare; got -n 3" in rnf("evaluate", "image-run", "-n", 3, code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "-1"], "positive number of rows; got -1"),
        (["-n", "0"], "positive number of samples; got 0"),
        (["--skip-fid"], "table-run is a model of tables; --skip-fid and --network are for images"),
        (["--network", "x.pt"], "--skip-fid and --network are for images"),
        (["--rows", "9"], "at least 10 test rows to evaluate on; got 9. Give more --rows"),
    ],
)
def test_mistakes(here, rnf, words, message):
    assert message in rnf("evaluate", "table-run", *words, code=2)
