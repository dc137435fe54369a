import os
import signal

import pytest

from rectangular_flows.training.signals import GivenUp, StopSignals


def test_signals_have_their_usual_effect_again():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us deaf to it
    try:
        _signals_have_their_usual_effect_again()
    finally:
        signal.signal(signal.SIGINT, before)


def _signals_have_their_usual_effect_again():
    with StopSignals(enabled=True) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with StopSignals(enabled=False), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_work_is_given_up_only_where_it_may_be():
    with StopSignals(enabled=True) as signals, pytest.raises(GivenUp), signals.giving_up():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.number == signal.SIGTERM
    done = []
    with StopSignals(enabled=True) as signals, signals.giving_up(allowed=False):
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("to the end")
    assert done
    assert signals.requested
