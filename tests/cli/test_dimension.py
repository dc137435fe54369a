import numpy as np

from rectangular_flows.metrics.dimension import estimate_dimension
from rectangular_flows.plots import dimension


def test_estimates_are_printed_and_drawn(here, rnf, rows_of, check_layout, monkeypatch):
    drawn = []
    draw = dimension.draw_dimension
    monkeypatch.setattr(dimension, "draw_dimension", lambda *given: drawn.append(given) or draw(*given))
    random = np.random.default_rng(0)
    z = random.normal(size=(300, 1))
    values = np.concatenate([np.cos(z), np.sin(z), z, random.normal(size=(300, 1))], axis=1)
    np.savetxt("line.csv", values, delimiter=",", header="a,b,c,noise", comments="")
    said = rnf("dimension", "line.csv", "--exclude", "noise", "-o", "new/line.png", "--seed", 4)
    (found, spectrum), rows = drawn[0], rows_of(said)
    assert rows["two nearest neighbours"] == [f"{found.two_nn.value:.2f}", f"{found.two_nn.standard_error:.2f}"]
    assert rows["maximum likelihood"] == [f"{found.mle.value:.2f}", f"{found.mle.standard_error:.2f}"]
    assert rows["principal components with 95 % of the variance"] == [str(found.pca_95)]
    check_layout(said, "dimension", "±")
    assert f"suggestion: --latent-dim {found.suggestion} (--latent-dim auto chooses it)" in said
    assert found.suggestion == 1
    assert said.splitlines()[-1] == "figure: new/line.png"
    assert spectrum.shape == (3,)
    assert "line.csv: 3 columns, 240 rows" in said  # without validation and test rows
    assert (here / "new" / "line.png").read_bytes()[1:4] == b"PNG"


def test_all_columns_count_unless_left_out(here, rnf):
    assert "table.csv: 3 columns" in rnf("dimension", "table.csv")
    assert "table.csv: 2 columns" in rnf("dimension", "table.csv", "--columns", "height,age")
    values = np.loadtxt("table.csv", delimiter=",", skiprows=1)
    assert 1 <= estimate_dimension(values).suggestion <= 2
