"""The page of a run: its cards are the numbers of the evaluation, its charts the history."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rectangular_flows import SavedRun
from rectangular_flows.evaluation.evaluate import evaluate_run
from rectangular_flows.evaluation.explain import Reason, UnusualRow
from rectangular_flows.evaluation.verdict import Verdict
from rectangular_flows.plots.curves import curve_data
from rectangular_flows.plots.run import Drawing
from rectangular_flows.report import run as page_of_a_run
from rectangular_flows.report.run import run_page
from tests.cli.conftest import here  # noqa: F401


@pytest.fixture
def page(here, monkeypatch):  # noqa: F811
    monkeypatch.setattr(page_of_a_run, "draw_run", lambda run: [Drawing("one", Figure(), "what it shows")])
    return lambda: run_page(SavedRun("table-run"))


def parts(page, title):
    return next(section.parts for section in page.sections if section.title == title)


def test_cards_are_the_numbers_of_the_evaluation(page):
    made = page()
    numbers = evaluate_run(SavedRun("table-run"))
    kept = json.loads(Path("table-run/evaluation.json").read_text())
    assert kept.pop("verdict") == json.loads(Path("table-run/verdict.json").read_text())
    assert kept == pytest.approx(numbers)
    _, cards, text = parts(made, "In short")
    shown = {card.label: (card.value, card.note) for card in cards.metrics}
    assert shown == {
        "Negative log-likelihood": (f"{numbers['negative_log_likelihood']:.4g}", "test rows, on the manifold"),
        "Reconstruction error": (f"{numbers['reconstruction_error']:.3g}", "mean squared distance, test rows"),
        "Sliced Wasserstein-2, squared": (
            f"{numbers['sliced_wasserstein']:.3g}",
            f"real against real: {numbers['sliced_wasserstein_floor']:.3g}",
        ),
        "Classifier, samples or data": (
            f"{numbers['c2st']:.1%}",
            f"50 % cannot tell; real: {numbers['c2st_floor']:.1%}",
        ),
    }
    assert "table.csv: 96 rows to train on, 3 columns; a manifold of dimension 1" in text.body
    assert "Trained for 6 epochs" in text.body


def test_charts_show_the_history(page):
    history = SavedRun("table-run").history
    error, likelihood, rate = parts(page(), "How training went")
    for chart, field in ((error, "reconstruction"), (likelihood, "negative_log_likelihood"), (rate, "learning_rate")):
        (line,) = curve_data(chart)
        assert line.x.tolist() == [epoch.epoch for epoch in history]
        assert line.y.tolist() == pytest.approx([getattr(epoch, field) for epoch in history])


def test_figures_settings_and_commands(page):
    made = page()
    (picture,) = parts(made, "Figures")
    assert (picture.alt, picture.caption) == ("what it shows", "what it shows")
    assert "latent_dim = 1" in parts(made, "Settings")[0].body
    assert "rnf score table-run your-table.csv" in parts(made, "Use it")[0].body
    assert made.title == "table-run"


def test_the_most_unusual_rows_are_shown_with_their_reasons(page, monkeypatch):
    assert "The most unusual rows" not in [section.title for section in page().sections]  # a run of version 0.1
    row = UnusualRow(3, "test row 4", 9.5, 0.01, [Reason("weight", 8.0, 412.0, 71.0)])
    asked = []
    monkeypatch.setattr(page_of_a_run, "unusual_rows", lambda run, rows, name: asked.append((len(rows), name)) or [row])
    text, picture = parts(page(), "The most unusual rows")
    assert asked == [(12, "test row")]
    assert "rnf score table-run your-table.csv --explain" in text.body
    assert picture.alt == "test row 4: outlier score 9.5, p = 0.01; weight = 412, typical 71 (8 nats)"


def test_earlier_numbers_of_samples_of_images_are_kept(page):
    earlier = {"fid": 3.25, "fid_floor": 1.5, "samples": 70, "kid": 0.1, "kid_floor": 0.0, "test_rows": 1}
    run = SavedRun("table-run")
    run.evaluation = earlier
    numbers = page_of_a_run._evaluated(run, Verdict(1, 3, 96, 12))
    assert (numbers["fid"], numbers["samples"]) == (3.25, 70)
    assert numbers["test_rows"] == 12


def cards(**numbers):
    known = {"negative_log_likelihood": 1.0, "reconstruction_error": 2.0}
    return {card.label: (card.value, card.note) for card in page_of_a_run._cards({**known, **numbers})}


def test_cards_of_a_known_truth_and_of_images():
    circle = cards(circle_kl=0.01234, circle_max_distance=0.5, c2st=0.5, c2st_floor=0.5)
    assert list(circle)[2:] == ["KL to the truth", "Largest distance to the circle"]
    assert circle["KL to the truth"][0] == "0.0123"
    sphere = cards(
        sphere_log_density=-0.5,
        sphere_kernel_log_density=-0.7,
        sphere_uniform_log_density=-2.53,
        sphere_sample_distance=0.02,
    )
    assert sphere["Log-density per steradian"] == ("-0.5", "test rows; kernel estimate -0.7, uniform -2.53")
    images = cards(fid=12.3456, fid_floor=3.0, kid=0.01, kid_floor=0.0, kid_standard_error=0.002, samples=5000)
    assert images["FID"] == ("12.3", "5,000 samples; real against real: 3")
    assert images["KID"] == ("0.01", "± 0.002; real against real: 0")
    assert len(cards()) == 2


def test_too_few_rows_give_a_page_without_numbers(page):
    config = Path("table-run/config.toml")
    text = config.read_text().replace("test_fraction = 0.1", "test_fraction = 0.03")
    config.write_text(text.partition("[record]")[0])  # without the fingerprints of the other split
    card, text = parts(page(), "In short")
    assert card.metrics[0].value == "Not judged"
    assert "No numbers: expected at least 10 test rows to evaluate on; got 3" in text.body


def test_a_run_without_history_is_refused(page):
    Path("table-run/metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="table-run has no history yet"):
        page()
