"""Several rectangular flows as one model."""

from .model import Atlas, IdleChartWarning, width_of
from .models import Model, by_chart, one_chart

__all__ = ["Atlas", "IdleChartWarning", "Model", "by_chart", "one_chart", "width_of"]
