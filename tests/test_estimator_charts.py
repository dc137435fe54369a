import numpy as np
import pytest
import torch

from rectangular_flows import Atlas, RectangularFlowEstimator


def test_an_estimator_of_two_charts(tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(160, 3)) * [1, 0.2, 0.02] + 6 * (np.arange(160) % 2)[:, None]
    options = {"latent": "affine", "layers": 2, "hidden": (8,), "epochs": 3, "random_state": 0}
    est = RectangularFlowEstimator(latent_dim=2, charts=2, **options).fit(X)
    assert isinstance(est.flow_, Atlas)
    Z = est.transform(X)
    assert Z.shape == (160, 3)
    assert set(Z[:, 0]) == {0.0, 1.0}
    assert (Z[::2, 0] == Z[0, 0]).all()
    projected = est.flow_.project(torch.from_numpy(X).float()).detach().numpy()
    assert np.allclose(est.inverse_transform(Z), projected, atol=1e-4)
    assert list(est.get_feature_names_out()) == [f"rectangularflowestimator{i}" for i in range(3)]
    with pytest.raises(ValueError, match="the number of a chart, from 0 to 1"):
        est.inverse_transform([[2.0, 0.0, 0.0]])
    assert est.sample(20).shape == (20, 3)
    assert np.isfinite(est.score(X))
    assert np.isfinite(est.explain(X[:2]).score).all()
    assert est.summary().charts == 2
    est.save(tmp_path)
    again = RectangularFlowEstimator.load(tmp_path)
    assert np.array_equal(again.score_samples(X), est.score_samples(X))
