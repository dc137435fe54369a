"""Nothing is lost and nothing is silently wrong, whatever happens to a run in whatever order."""

import os

import pytest
import torch

from tests.tally import measured, tally

from .sequence import Sequence

SHORT, LONG = range(2), range(300)
"""Seeds of the sequences."""

pytestmark = [
    pytest.mark.skipif(
        not hasattr(os, "fork") or torch.cuda.is_available(), reason="copies of this process must train"
    ),
    pytest.mark.filterwarnings("default"),  # they are shown to people
    pytest.mark.filterwarnings("ignore::rectangular_flows.runs.saved.UnfinishedRunWarning"),
]


def play(seed, folder):
    """One sequence; what happened in it, where something was wrong."""
    counted = tally("simulator: sequences"), tally("simulator: commands in them")
    measured("Seeds of the simulator", f"{LONG[0]} to {seed}")
    steps, folder = [], folder / str(seed)
    folder.mkdir()
    sequence = Sequence(seed, folder, steps.append)
    try:
        sequence.play()
    except Exception as error:
        story = "\n  ".join(steps)
        pytest.fail(f"{error}\nsequence {seed}; play it again: python -m tests.simulator {seed}\n  {story}")
    else:
        counted[0].held += 1
        counted[1].held += sequence.commands
    finally:
        counted[0].tried += 1
        counted[1].tried += sequence.commands


@pytest.mark.parametrize("seed", SHORT)
def test_a_short_sequence(tmp_path, seed):
    play(seed, tmp_path)


@pytest.mark.reliability
@pytest.mark.parametrize("seed", LONG)
def test_sequence(tmp_path, seed):
    play(seed, tmp_path)
