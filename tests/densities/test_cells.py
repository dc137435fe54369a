from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectangular_flows.densities.cells import FINEST, _blocks, cell_edges


def fitness(values, edges, price):
    """Of cells, one by one: what Bayesian blocks maximise."""
    total = 0.0
    for low, high in pairwise(edges):
        inside = ((values > low) & (values <= high)).sum() + (low == edges[0]) * (values == low).sum()
        total += inside * np.log(inside / (high - low)) - price
    return total


def test_blocks_are_the_best_of_all_ways_to_cut():
    values = np.sort(np.random.default_rng(0).uniform(size=9) ** 3)
    between = (values[1:] + values[:-1]) / 2
    price = 4 - np.log(73.53 * 0.05 * 9**-0.478)
    every = []
    for bits in range(2**8):
        cuts = between[[bool(bits >> i & 1) for i in range(8)]]
        every.append(fitness(values, np.concatenate([values[:1], cuts, values[-1:]]), price))
    assert fitness(values, _blocks(values), price) == pytest.approx(max(every), abs=1e-9)


def test_an_edge_lies_where_the_density_changes():
    random = np.random.default_rng(1)
    values = np.concatenate([random.uniform(0, 1, 1500), random.uniform(1, 5, 500)])
    edges = cell_edges(values)
    assert np.abs(edges - 1).min() < 0.02
    assert len(edges) < 6


def test_values_that_many_rows_share_have_cells_of_one_step():
    random = np.random.default_rng(2)
    values = np.concatenate([np.full(300, 2.0), np.round(random.normal(10, 3, 700), 1)])
    edges = cell_edges(values)
    low, high = (edges[np.searchsorted(edges, 2.0) + i] for i in (-1, 0))
    assert (low, high) == (pytest.approx(1.95), pytest.approx(2.05))


def test_a_cell_is_never_narrower_than_the_finest():
    values = np.concatenate([np.zeros(500), 1e-9 * np.ones(3), np.linspace(1, 2, 500)])
    edges = cell_edges(values)
    low, high = (edges[np.searchsorted(edges, 1e-10) + i] for i in (-1, 0))
    assert high - low == pytest.approx(FINEST * values.std())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), min_size=1, max_size=60), st.integers(4, 12))
def test_edges_rise_and_hold_every_value(values, most):
    values = np.array(values)
    edges = cell_edges(values, most)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= most + 1
    assert edges[0] <= values.min()
    assert values.max() <= edges[-1]
