import functools
import json
import os
import signal
import tomllib

import pytest
import torch
import zuko

import rectangular_flows as rnf
from rectangular_flows.data import von_mises_circle
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.kinds import Table, make
from rectangular_flows.training.folder import RunFolder, read_config
from rectangular_flows.training.history import last_epoch, read_history
from rectangular_flows.training.run import Epoch
from rectangular_flows.training.signals import Interrupted

from .test_loop import data, make_flow, plain, same

HARD = {"batch_size": 100, "learning_rate": 1e-2, "schedule": "cosine", "ema": 0.9, "clip": 5.0, "target_error": 0.01}
CONFIGS = {
    "ml": rnf.TrainingConfig(epochs=5, **HARD),
    "stochastic": plain(epochs=5, volume=rnf.volume.Stochastic(), volume_fraction=0.5, **HARD),
    "two-step": plain(epochs=5, method="two-step", batch_size=100, anneal=(1, 3), optimiser="adamw"),
    "h alone": plain(epochs=2, latent_epochs=4, anneal=(0.5, 1), start_latent=True, restart_latent=True, **HARD),
    "two-step, h alone": plain(
        epochs=2, latent_epochs=2, method="two-step", batch_size=100, patience=1, optimiser="adamw", weight_decay=0.1
    ),
}


def files(folder):
    return {path.name for path in folder.iterdir()}


def test_a_run_leaves_everything(tmp_path):
    train, validation = data()
    config = CONFIGS["stochastic"]
    run = rnf.fit(
        make_flow(), train, config, validation=validation, out=tmp_path / "a" / "b", facts={"columns": ["x", "y"]}
    )
    folder = run.folder
    assert files(folder) == {
        "manifest.json", "config.toml", "metrics.jsonl", "metrics.csv", "model.safetensors", "model.json", "checkpoint",
    }  # fmt: skip
    settings = tomllib.loads((folder / "config.toml").read_text())
    assert settings.pop("record").keys() >= {"rectangular_flows", "torch", "python", "train_sha256", "started"}
    assert make(rnf.TrainingConfig, Table(rnf.TrainingConfig).sift(settings)) == config
    assert read_history(folder) == run.history
    rows = (folder / "metrics.csv").read_text().splitlines()
    assert len(rows) == 6
    assert rows[0].startswith("epoch,step,objective")
    model = rnf.load(folder)
    assert torch.equal(model.log_prob(validation), run.flow.log_prob(validation))
    assert json.loads((folder / "model.json").read_text())["facts"] == {"columns": ["x", "y"]}


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The run by each of the settings that nothing stopped, trained once."""
    train, validation = data()

    @functools.cache
    def run(name):
        out = tmp_path_factory.mktemp("straight")
        return rnf.fit(make_flow(), train, CONFIGS[name], validation=validation, out=out)

    return run


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("steps", [1, 13, 30])
def test_resuming_gives_the_same_weights_bit_by_bit(tmp_path, name, steps, never_stopped):
    train, validation = data()
    config, straight = CONFIGS[name], never_stopped(name)

    def interrupt(run):
        if run.progress.step == steps:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=rf"step {steps}; .*rnf fit --resume"):
        rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path / "stopped", on_step=interrupt)
    resumed = rnf.fit(make_flow(7), train, config, validation=validation, out=tmp_path / "stopped", resume=True)
    assert same(straight.flow.state_dict(), resumed.flow.state_dict())
    values = [[{**line.flat(), "seconds": 0} for line in run.history] for run in (straight, resumed)]
    assert json.dumps(values[0]) == json.dumps(values[1])  # as text, for NaN equals NaN there
    assert read_history(tmp_path / "stopped") == resumed.history or name not in ("ml", "stochastic")  # NaN again
    for name in ("model.safetensors", "model.json"):
        assert (straight.folder / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()


@pytest.mark.parametrize("steps", [5, 6, 7])
def test_resuming_about_the_start_of_h(tmp_path, steps):
    train, validation = data()
    config = plain(epochs=3, batch_size=100, anneal=(1, 1), start_latent=True, ema=0.9)

    def flow(seed):
        torch.manual_seed(seed)
        return rnf.RectangularFlow(rnf.flows.RealNVP(2, 4, (16,)), rnf.flows.ActNorm(1))

    def interrupt(run):
        if run.progress.step == steps:
            os.kill(os.getpid(), signal.SIGINT)

    straight = rnf.fit(flow(0), train, config, validation=validation)
    with pytest.raises(Interrupted):
        rnf.fit(flow(0), train, config, validation=validation, out=tmp_path, on_step=interrupt)
    resumed = rnf.fit(flow(1), train, config, validation=validation, out=tmp_path, resume=True)
    assert same(straight.flow.state_dict(), resumed.flow.state_dict())


def test_a_signal_within_a_step_gives_it_up(tmp_path, never_stopped):
    train, validation = data()
    config, straight = CONFIGS["stochastic"], never_stopped("stochastic")
    flow, calls = make_flow(), []
    flow.ambient.layers[0].register_forward_pre_hook(lambda *_: calls.append(0) or _kill_at(calls, 15))
    with pytest.raises(Interrupted):
        rnf.fit(flow, train, config, validation=validation, out=tmp_path)
    resumed = rnf.fit(make_flow(1), train, config, validation=validation, out=tmp_path, resume=True)
    assert same(straight.flow.state_dict(), resumed.flow.state_dict())


def _kill_at(calls, count):
    if len(calls) == count:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_within_a_validation_repeats_it(tmp_path):
    train, validation = data()
    calls = []

    def metric(flow, rows):
        calls.append(0)
        _kill_at(calls, 2)
        return float(len(calls))

    config = plain(epochs=3, batch_size=100)
    with pytest.raises(Interrupted) as stop:
        rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path, metrics={"mine": metric})
    assert stop.value.exit_code == 143
    run = rnf.fit(
        make_flow(), train, config, validation=validation, out=tmp_path, resume=True, metrics={"mine": metric}
    )
    assert [line.epoch for line in run.history] == [1, 2, 3]
    assert len(calls) == 4


def test_a_finished_run_resumed_is_left_as_it_is(tmp_path):
    train, validation = data()
    config = CONFIGS["ml"]
    run = rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "evaluation.json").write_text("{}")
    again = rnf.fit(make_flow(3), train, config, validation=validation, out=tmp_path, resume=True)
    assert same(run.flow.state_dict(), again.flow.state_dict())
    assert again.history == run.history
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert (tmp_path / "evaluation.json").exists()


def test_more_epochs_go_on(tmp_path):
    train, validation = data()
    settings = {"batch_size": 100, "learning_rate": 1e-2}
    straight = rnf.fit(make_flow(), train, plain(epochs=4, **settings), validation=validation)
    rnf.fit(make_flow(), train, plain(epochs=2, **settings), validation=validation, out=tmp_path)
    (tmp_path / "evaluation.json").write_text("{}")  # of a model that is about to change
    longer = plain(epochs=4, **settings)
    more = rnf.fit(make_flow(1), train, longer, validation=validation, out=tmp_path, resume=True)
    assert [line.epoch for line in more.history] == [1, 2, 3, 4]
    assert not (tmp_path / "evaluation.json").exists()
    assert same(straight.flow.state_dict(), more.flow.state_dict())


def test_folders_are_not_overwritten_by_mistake(tmp_path):
    train, validation = data()
    config = plain(epochs=1, batch_size=300)
    rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path)
    with pytest.raises(FileExistsError, match="--resume"):
        rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path)
    rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path, overwrite=True)
    assert len(read_history(tmp_path)) == 1
    with pytest.raises(ValueError, match="the train rows are not those"):
        rnf.fit(make_flow(), train + 1, config, validation=validation, out=tmp_path, resume=True)
    with pytest.raises(FileNotFoundError, match="nothing to resume from"):
        rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path / "none", resume=True)
    with pytest.raises(ValueError, match="needs out"):
        rnf.fit(make_flow(), train, config, resume=True)


def test_a_failure_keeps_the_best_model(tmp_path):
    train, validation = data()
    config = plain(epochs=50, batch_size=100, learning_rate=1e4)
    with pytest.raises(NonFiniteError):
        rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path)
    model = rnf.load(tmp_path)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_a_history_cut_short_is_read(tmp_path):
    train, validation = data()
    run = rnf.fit(make_flow(), train, plain(epochs=2, batch_size=300), validation=validation, out=tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"epoch": 3, "st')
    assert read_history(tmp_path) == run.history


def test_a_model_without_a_description_is_passed(tmp_path):
    def make():
        torch.manual_seed(0)
        return rnf.RectangularFlow(rnf.flows.RealNVP(2, 2), zuko.flows.MAF(features=1, transforms=1))

    x = von_mises_circle(100, seed=0)
    run = rnf.fit(make(), x, rnf.TrainingConfig(epochs=1), out=tmp_path)
    with pytest.raises(ValueError, match=r"has to be passed, load\(…, flow=…\)"):
        rnf.load(tmp_path)
    again = rnf.load(tmp_path, flow=make())
    assert torch.equal(again.log_prob(x), run.flow.log_prob(x))
    assert torch.equal(again.ambient_log_prob(x), run.flow.ambient_log_prob(x))


def lines(count, **metrics):
    return [Epoch(i, *(0.5 * i for _ in range(10)), i, metrics) for i in range(1, count + 1)]


def test_history_written_at_once_and_line_by_line(tmp_path):
    whole, grown = RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    history = lines(3, mine=2.0)
    for folder in (whole, grown):
        folder.path.mkdir()
    whole.write_history(history)
    for i, line in enumerate(history):
        grown.write_history([line], append=i > 0)
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (whole.path / name).read_text() == (grown.path / name).read_text()
    table = (whole.path / "metrics.csv").read_text().splitlines()
    assert table[0].split(",")[:2] + table[0].split(",")[-1:] == ["epoch", "step", "mine"]
    assert [row.split(",")[0] for row in table[1:]] == ["1", "2", "3"]
    assert read_history(grown.path) == history
    assert last_epoch(grown.path) == history[-1]
    assert last_epoch(tmp_path) is None


def test_one_process_of_several_writes(tmp_path):
    RunFolder(tmp_path, writes=False).write_history(lines(2))
    assert not list(tmp_path.iterdir())


def test_settings_without_a_value_are_left_out(tmp_path):
    train, validation = data()
    rnf.fit(make_flow(), train, plain(epochs=1, clip=None), validation=validation, out=tmp_path)
    written = read_config(tmp_path)
    assert "clip" not in written
    assert written["epochs"] == 1
    assert written["record"]["train_rows"] == len(train)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "config.toml").write_text("epochs = 5\n# clip = none\n\n[record]\ndata = 'a.csv'\n")  # of old runs
    assert read_config(tmp_path) == {"epochs": 5, "record": {"data": "a.csv"}}


@pytest.mark.parametrize("resume", [False, True])
def test_leftovers_of_a_crash_are_removed(tmp_path, resume):
    train, validation = data()
    config = plain(epochs=1, batch_size=300)
    rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path)
    leftovers = [tmp_path / ".model.json.x1.rnf-tmp"]
    leftovers += [tmp_path / "checkpoint" / ".state.safetensors.x2.rnf-tmp"] if resume else []
    for path in leftovers:
        path.write_text("half")
    rnf.fit(make_flow(), train, config, validation=validation, out=tmp_path, resume=resume, overwrite=not resume)
    assert not any(path.exists() for path in leftovers)
