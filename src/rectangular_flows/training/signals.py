"""Ctrl-C and SIGTERM while training: the step is given up, the state is saved, and the message says how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal, after its state was saved."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.exit_code = 128 + number


class GivenUp(BaseException):
    """Raised by a signal inside :meth:`StopSignals.giving_up`."""


class StopSignals:
    """Catches the first Ctrl-C or SIGTERM; a second one has its usual effect.

    Args:
        enabled: nothing is caught where there is no folder to save to.
        patient: catch later ones too: torchrun passes on a Ctrl-C that its processes got as well.
    """

    def __init__(self, enabled: bool, patient: bool = False):
        self._patient = patient
        self.number: int | None = None
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._may_give_up = False

    def __enter__(self) -> StopSignals:
        if self._enabled:
            self._before = {number: signal.signal(number, self._caught) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self.number is not None

    @contextmanager
    def giving_up(self, allowed: bool = True) -> Iterator[None]:
        """A signal ends work in this context by :class:`GivenUp`; such work must leave no trace."""
        self._may_give_up = allowed
        try:
            yield
        finally:
            self._may_give_up = False

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        if not self._patient:
            self._restore()
        if self._may_give_up:
            raise GivenUp

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
