from rectangular_flows.plots.curves import curve_data
from rectangular_flows.report.run import training_charts
from rectangular_flows.training import Epoch


def history(scale):
    """Three epochs in which no series equals another."""
    names = ("objective", "negative_log_likelihood", "reconstruction", "train_loss", "train_reconstruction", "weight")
    names += ("beta", "learning_rate", "gradient_norm", "seconds")
    return [
        Epoch(epoch, 100 * epoch, **{name: scale * (10 * i + epoch) for i, name in enumerate(names, start=1)})
        for epoch in (1, 2, 5)
    ]


def test_each_chart_shows_its_own_series_by_epoch():
    error, likelihood, rate = training_charts({"one": history(1.0), "two": history(2.0)})
    wanted = {"one": 1.0, "two": 2.0}
    for chart, field in ((error, "reconstruction"), (likelihood, "negative_log_likelihood"), (rate, "learning_rate")):
        for line, (name, scale) in zip(curve_data(chart), wanted.items(), strict=True):
            assert line.label == name
            assert line.x.tolist() == [1, 2, 5]
            assert line.y.tolist() == [getattr(epoch, field) for epoch in history(scale)]
    assert [chart.title.partition(" (")[0] for chart in (error, likelihood, rate)] == [
        "Reconstruction error",
        "Negative log-likelihood",
        "Learning rate",
    ]
    assert [chart.y_label for chart in (error, likelihood, rate)] == ["squared distance", "nats", "rate"]
    assert [chart.log_y for chart in (error, likelihood, rate)] == [True, False, False]


def test_before_the_first_epoch_there_is_no_data():
    assert [line.label for chart in training_charts({"run": []}) for line in curve_data(chart)] == [
        "run (no data yet)"
    ] * 3
