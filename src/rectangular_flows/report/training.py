"""How training went, in charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..plots import Chart, Curve
from ..training import Epoch


def training_charts(histories: Mapping[str, Sequence[Epoch]]) -> list[Chart]:
    """Reconstruction error, negative log-likelihood and learning rate by epoch, one curve a run."""

    def curves(field: str) -> list[Curve]:
        return [
            Curve(name, [line.epoch for line in lines], [float(getattr(line, field)) for line in lines])
            for name, lines in histories.items()
        ]

    error, likelihood = "Reconstruction error (validation rows)", "Negative log-likelihood (validation rows)"
    return [
        Chart(curves("reconstruction"), "epoch", "squared distance", error, log_y=True),
        Chart(curves("negative_log_likelihood"), "epoch", "nats", likelihood),
        Chart(curves("learning_rate"), "epoch", "rate", "Learning rate"),
    ]
