"""Jobs on Ray: each is a task on one core of a cluster, whose machines see the same folders and data files."""

from __future__ import annotations

from typing import Any

from .jobs import Job, Outcome, Worker, outcome_of


def connect(address: str | None = None) -> Any:
    """Ray, connected to the cluster at an address, or to one on this machine; it is imported here and nowhere else.

    Raises:
        ValueError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ValueError("Ray is not installed: pip install 'rectangular-flows[ray]'") from error
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False)
        except ConnectionError as error:
            raise ValueError(f"expected a Ray cluster at {address}; found none ({error})") from error
    return ray


class RayWorker(Worker):
    """A task of Ray. Ray decides when it begins: all are submitted at once."""

    def __init__(self, job: Job, fresh: bool):
        super().__init__(job, fresh)
        self._ray = connect()
        self._task: Any = None

    @property
    def running(self) -> bool:
        """Whether it was submitted and has not ended; where it has just ended, sets the outcome."""
        if self._task is None or self.outcome is not None:
            return False
        if not self._ray.wait([self._task], timeout=0)[0]:
            return True
        try:
            self.outcome = self._ray.get(self._task)
        except self._ray.exceptions.TaskCancelledError:
            self.outcome = Outcome(failure="it was stopped")
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self.outcome = Outcome(failure=f"its Ray worker died: {first}")
        return False

    def start(self) -> None:
        """Submit it; Ray is not to start it again if its worker dies, since a rerun resumes it."""
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(outcome_of).remote(self.job, self.fresh)

    def stop(self) -> None:
        """Interrupt it, once: a run that trains saves its state first."""
        if self._task is not None and not self.stopping:
            self.stopping = True
            self._ray.cancel(self._task, force=False)
