"""Jobs on Ray, with a Ray that only records what it is asked for."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from rectangular_flows.runs import ray_workers
from rectangular_flows.runs.jobs import Job, Outcome, outcome_of
from rectangular_flows.runs.ray_workers import RayWorker, connect
from rectangular_flows.settings import read_preset


class RayError(Exception):
    pass


class TaskCancelledError(RayError):
    pass


@pytest.fixture
def ray(monkeypatch):
    """Ray, whose one task has ended when ``ended`` is set to what ``get`` gives or raises."""
    module = ModuleType("ray")
    module.calls, module.ended, module.ready = [], None, False

    def wait(tasks, timeout):
        assert timeout == 0
        return (tasks, []) if module.ended is not None else ([], tasks)

    def get(task):
        if isinstance(module.ended, Exception):
            raise module.ended
        return module.ended

    def remote(**options):
        def call(function):
            def submit(*arguments):
                module.calls.append((options, function, arguments))
                return "task"

            return SimpleNamespace(remote=submit)

        return call

    def init(**options):
        module.calls.append(options)
        if options["address"] == "nowhere":
            raise ConnectionError("refused")
        module.ready = True

    module.is_initialized = lambda: module.ready
    module.init, module.wait, module.get, module.remote = init, wait, get, remote
    module.cancel = lambda task, force: module.calls.append((task, force))
    module.exceptions = SimpleNamespace(RayError=RayError, TaskCancelledError=TaskCancelledError)
    monkeypatch.setitem(sys.modules, "ray", module)
    return module


@pytest.fixture
def job(tmp_path):
    return Job("one", {**read_preset("circle-ml"), "epochs": 1}, tmp_path / "run")


def test_it_connects_once(ray):
    assert connect("auto") is ray
    assert connect("elsewhere") is ray
    quiet = {"log_to_driver": False, "logging_level": "error", "include_dashboard": False}
    assert ray.calls == [{"address": "auto", **quiet}]


def test_no_cluster_and_no_ray(ray, monkeypatch):
    with pytest.raises(ValueError, match=r"expected a Ray cluster at nowhere; found none \(refused\)"):
        connect("nowhere")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'rectangular-flows\[ray\]'"):
        connect()


def test_a_task_from_its_start_to_its_end(ray, job):
    ray.ready = True
    worker = RayWorker(job, True)
    worker.stop()  # nothing runs yet
    assert (worker.running, worker.stopping, ray.calls) == (False, False, [])
    worker.start()
    assert ray.calls == [({"num_cpus": 1, "max_retries": 0}, outcome_of, (job, True))]
    assert worker.running
    assert worker.outcome is None
    ray.ended = Outcome(3.0)
    assert not worker.running
    assert worker.outcome == Outcome(3.0)
    ray.ended = RayError("asked again")
    assert not worker.running
    assert worker.outcome == Outcome(3.0)


def test_it_is_cancelled_once_and_kindly(ray, job):
    ray.ready = True
    worker = RayWorker(job, False)
    worker.start()
    worker.stop()
    worker.stop()
    assert ray.calls[1:] == [("task", False)]
    assert worker.stopping


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TaskCancelledError("x"), "it was stopped"),
        (RayError("\n out of memory\n at node 3"), "its Ray worker died: out of memory"),
        (RayError(""), "its Ray worker died: RayError"),
    ],
)
def test_how_a_task_ends(ray, job, error, failure):
    ray.ready = True
    worker = ray_workers.RayWorker(job, False)
    worker.start()
    ray.ended = error
    assert not worker.running
    assert worker.outcome == Outcome(failure=failure)
