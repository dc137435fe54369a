import torch

from rectangular_flows import Atlas
from rectangular_flows.plots.charts import chart_points, draw_charts
from tests.test_atlas import arc, circle


def atlas():
    return Atlas([arc(0.0, 0.3), arc(0.9, 0.3), arc(1.0, 0.4, radius=9.0)], sigma=0.05).double()


def test_rows_by_their_chart_and_the_seam_between_two():
    t, x = circle(400)
    near = x[(t < 0.9)]
    found = chart_points(atlas(), torch.cat([near, circle(5, radius=9.0)[1]]), ("a", "b"))
    assert found.columns == ["a", "b"]
    assert found.chart.tolist() == [0 if angle < 0.45 else 1 for angle in t[t < 0.9]] + [2] * 5
    # the shares of two normal densities, 0.9 apart, are both above a tenth within 0.1 · ln 9 of the middle
    reach = 0.3**2 / 0.9 * torch.log(torch.tensor(9.0)).item()
    assert found.seam.tolist() == [abs(angle - 0.45) < reach for angle in t[t < 0.9].tolist()] + [False] * 5


def test_drawn_with_a_colour_a_chart():
    figure = draw_charts(atlas(), circle(50)[1], ("a", "$b$"))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[-1] == "seam"
    assert [text.split(":")[0] for text in texts[:-1]] == ["chart 0", "chart 1"]
    assert figure.axes[0].get_ylabel() == r"\$b\$"
