import pytest


@pytest.fixture(autouse=True)
def _fused(_fused_however_small):
    """Every test here takes the path of large bundles."""
