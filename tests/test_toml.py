import tomllib

from hypothesis import given
from hypothesis import strategies as st

from rectangular_flows import toml

PLAIN = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.text(), st.lists(st.text())
)


@given(st.dictionaries(st.text(min_size=1), st.one_of(PLAIN, st.dictionaries(st.text(min_size=1), PLAIN))))
def test_toml_round_trip(values):
    assert tomllib.loads(toml.dumps(values)) == values
