"""What a run saves: nothing lost, nothing mixed, nothing of others touched."""

import json
import math
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import rectangular_flows as rnf
from rectangular_flows.storage.files import DamagedFileError
from rectangular_flows.storage.lock import LOCK, InUseError
from rectangular_flows.storage.manifest import DamagedFileWarning, read_files
from rectangular_flows.training.folder import ChangedSettingsWarning, RunFolder, is_run, read_config
from rectangular_flows.training.history import history_files, parse_history, read_history
from rectangular_flows.training.run import Epoch
from rectangular_flows.training.signals import Interrupted
from tests.storage.life import CONFIG, FACTS, HELD_OUT, TRAIN, finish, make_flow, seen, train

from .test_loop import same

BEFORE = Path(__file__).parents[1] / "fixtures" / "before-house"
EVERY_STEP = replace(CONFIG, checkpoint_every=0.0)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done") / "run"
    finish(folder)
    return folder


@pytest.fixture
def run(done, tmp_path):
    """A copy of a finished run."""
    shutil.copytree(done, tmp_path / "run")
    return tmp_path / "run"


def stopped(folder, at=3, **options):
    with pytest.raises(Interrupted):
        train(folder, stop_at=at, **options)


def flip(path, share=0.7):
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 4
    path.write_bytes(content)


# --- folders of others


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("config", ["title = 'mine'\n", "epochs = 3\n[record]\nversion = 1\n", None])
def test_a_folder_that_is_not_a_run_is_not_touched(tmp_path, overwrite, config):
    mine = {
        name: f"my {name}" for name in ("report.html", "figures/a.png", "checkpoint/state.safetensors", "model.json")
    }
    mine |= {"tensorboard/events.out.tfevents.1": "my", ".hidden": "mine"} | ({"config.toml": config} if config else {})
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(FileExistsError, match="is not empty, and holds no run"):
        train(tmp_path, overwrite=overwrite)
    (tmp_path / "checkpoint" / "state.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="nothing to resume from"):
        train(tmp_path, resume=True)
    del mine["checkpoint/state.safetensors"]
    assert {p.relative_to(tmp_path).as_posix(): p.read_text() for p in tmp_path.rglob("*") if p.is_file()} == mine


def test_files_of_others_in_a_run_survive_its_replacement(run):
    strangers = ("notes.txt", "figures/mine.png", "checkpoint/old.safetensors", "report.html")
    for name in strangers:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("mine")
    (run / "evaluation.json").write_text("{}")
    stopped(run, at=1, overwrite=True)
    there = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert there == {
        *strangers, "manifest.json", "config.toml", "model.json", "model.safetensors", "checkpoint/state.safetensors"
    }  # fmt: skip


def test_what_was_made_from_the_old_model_goes_with_it(run):
    for name in ("report.html", "figures/pairs.png"):
        (run / name).parent.mkdir(exist_ok=True)
        rnf.storage.files.write_atomically(run / name, "of the old model")
    stopped(run, at=1, overwrite=True)
    assert not (run / "report.html").exists()
    assert not (run / "figures").exists()
    assert rnf.SavedRun(run).calibration is None


def test_an_empty_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="expected the name of a folder"):
        train("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["table-run", "image-run", "stopped-run"])
def test_old_runs_are_known_as_such(name):
    assert is_run(BEFORE / name)
    assert not is_run(BEFORE / "estimator")


def test_an_old_run_is_replaced_as_a_whole(tmp_path):
    shutil.copytree(BEFORE / "table-run", tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    train(tmp_path / "run", overwrite=True)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "notes.txt", "manifest.json", "config.toml", "metrics.jsonl", "metrics.csv", "model.json", "model.safetensors",
        "checkpoint",
    }  # fmt: skip


# --- names of columns


def test_renamed_columns_are_refused(tmp_path):
    stopped(tmp_path)
    with pytest.raises(ValueError, match=r"columns are not those .* began with: 'y' then, 'z' now\. Give it the same"):
        train(tmp_path, resume=True, facts={"columns": ["x", "z"]})
    with pytest.raises(ValueError, match="in another order"):
        train(tmp_path, resume=True, facts={"columns": ["y", "x"]})
    assert train(tmp_path, resume=True).finished


def test_renamed_columns_of_an_old_run_are_refused(tmp_path):
    stopped(tmp_path)
    text = (tmp_path / "config.toml").read_text()
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "config.toml").write_text(text[: text.index("columns = [")])
    with pytest.raises(ValueError, match="'y' then, 'z' now"):
        train(tmp_path, resume=True, facts={"columns": ["x", "z"]})
    assert train(tmp_path, resume=True).finished


# --- one commit point, and repair


@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.parametrize(
    "name", ["model.safetensors", "model.json", "metrics.jsonl", "metrics.csv", "calibration.safetensors"]
)
def test_resuming_a_finished_run_repairs_it(run, done, name, damage):
    damage(run / name)
    if name.startswith(("model", "calibration")):
        with pytest.raises(DamagedFileError, match=rf"{name} is"):
            seen(run)
    finish(run, seed=3, resume=True)
    assert seen(run) == seen(done)
    assert read_history(run) == read_history(done)
    assert (run / name).read_bytes() == (done / name).read_bytes()


def test_a_crash_before_the_final_model_leaves_a_run_that_is_not_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "finish", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        train(tmp_path)
    job = rnf.runs.jobs.Job("a", {}, tmp_path)
    assert job.begun
    assert not job.complete
    monkeypatch.undo()
    assert train(tmp_path, resume=True).finished
    assert job.complete


# --- checksums


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "calibration.safetensors"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_flipped_bit_is_found_on_load(run, name, share):
    flip(run / name, share)
    with pytest.raises(DamagedFileError, match=rf"{name} is damaged"):
        rnf.SavedRun(run).flow, rnf.SavedRun(run).calibration
    if name != "calibration.safetensors":
        with pytest.raises(DamagedFileError, match=rf"{name} is damaged"):
            rnf.load(run)


def test_files_of_another_run_are_refused(run, tmp_path):
    other = finish(tmp_path / "other", seed=1).folder
    for name in ("model.safetensors", "calibration.safetensors", "checkpoint/state.safetensors"):
        mine = (run / name).read_bytes()
        shutil.copy(other / name, run / name)
        with pytest.raises(DamagedFileError, match="not the file that was saved there"):
            read_files(run, (name,))
        (run / name).write_bytes(mine)


def test_a_calibration_does_not_outlive_its_model(run):
    rnf.save(make_flow(9), run)
    assert rnf.SavedRun(run).calibration is None


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, done, damage):
    stopped(tmp_path, config=EVERY_STEP)
    damage(tmp_path / "checkpoint" / "state.safetensors")
    with pytest.warns(DamagedFileWarning, match="continues from the state before that one"):
        finish(tmp_path, seed=4, resume=True)
    assert seen(tmp_path) == seen(done)
    states = [tmp_path / "checkpoint" / f"{name}.safetensors" for name in ("state", "previous")]
    for state in states:
        flip(state)
    with pytest.raises(DamagedFileError, match=r"state\.safetensors is damaged"):
        train(tmp_path, resume=True)


def test_changed_settings_are_taken_and_said(run):
    config = run / "config.toml"
    before = read_config(run)
    config.write_text(config.read_text().replace("learning_rate = 0.003", "learning_rate = 0.001"))
    with pytest.warns(ChangedSettingsWarning, match=r"config\.toml has changed since the run began"):
        assert read_config(run) == {**before, "learning_rate": 0.001}
    config.write_text('data = "moved.csv"\n' + config.read_text().replace("0.001", "0.003"))
    assert read_config(run) == {**before, "data": "moved.csv"}  # files may be moved


# --- the lock


@pytest.mark.filterwarnings("ignore::rectangular_flows.runs.saved.UnfinishedRunWarning")
def test_a_run_is_not_disturbed_by_another(tmp_path):
    found = []

    def intrude(run):
        for options in ({"resume": True}, {"overwrite": True}, {}):
            thread = threading.Thread(target=attempt, args=(options,))
            thread.start()
            thread.join()
        found.append(seen(tmp_path) is not None)  # readers are not blocked

    def attempt(options):
        try:
            rnf.fit(make_flow(1), TRAIN, CONFIG, validation=HELD_OUT, out=tmp_path, facts=FACTS, **options)
        except (InUseError, FileExistsError) as error:
            found.append(type(error))

    train(tmp_path, config=EVERY_STEP, on_epoch=intrude)
    assert found == [InUseError, InUseError, FileExistsError, True] * 2
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_lock_is_given_back_whatever_happens(tmp_path, error):
    def fail(_):
        raise error

    with pytest.raises(error):
        train(tmp_path, on_step=fail)
    assert not (tmp_path / LOCK).exists()


# --- within an epoch


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_killed_within_an_epoch_goes_on_bit_by_bit(tmp_path, done, at):
    class Death(BaseException):
        pass

    def die(run):
        if run.progress.step == at + 1:
            raise Death

    with pytest.raises(Death):
        train(tmp_path, config=EVERY_STEP, on_step=die)
    steps = []
    resumed = train(tmp_path, 5, config=EVERY_STEP, resume=True, on_step=lambda run: steps.append(run.progress.step))
    assert steps == list(range(at + 1, 5))  # nothing but the step that was not saved is repeated
    assert same(resumed.flow.state_dict(), rnf.load(done).state_dict())


@pytest.mark.parametrize(("every", "saves"), [(0.0, 4), (math.inf, 0), (1.5, 2)])
def test_checkpoints_are_written_by_time(tmp_path, monkeypatch, every, saves):
    now, saved = [0.0], []
    monkeypatch.setattr(rnf.training.loop.time, "perf_counter", lambda: now[0])
    save = RunFolder.save
    monkeypatch.setattr(
        RunFolder, "save", lambda self, run, *more: saved.append(run.progress.step) or save(self, run, *more)
    )

    def tick(_):
        now[0] += 1.0

    train(tmp_path, config=replace(CONFIG, checkpoint_every=every), on_step=tick)
    assert len(saved) == saves + 1  # and one at the end


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_impossible_intervals_are_refused(value):
    with pytest.raises(ValueError, match="checkpoint_every"):
        rnf.TrainingConfig(checkpoint_every=value)


# --- the history


def test_the_history_is_json(tmp_path):
    train(tmp_path, config=replace(CONFIG, evaluate_every=2), metrics={"mine": lambda *_: math.nan})

    def refuse(word):
        raise AssertionError(word)

    (line,) = [
        json.loads(text, parse_constant=refuse) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert line["mine"] is None
    assert math.isnan(read_history(tmp_path)[0].metrics["mine"])


def test_every_number_comes_back():
    values = (0.1, math.inf, -math.inf, 1e-300, -0.0, 1e308, 3.0, 5e-324, 2.0, 7.25)
    line = Epoch(3, *values[:8], 0.5, 1.5, 2.5, {"a: Infinity": math.inf, 'q"': 1})
    text = history_files([line])["metrics.jsonl"].decode()
    assert parse_history(text, "here") == [line]
    (again,) = parse_history(text.replace("0.5", "NaN"), "of version 0.1")
    assert math.isnan(again.learning_rate)


def test_what_is_saved_is_what_is_trained(tmp_path):
    """Also where nothing was ever judged, and the moving average is what counts."""
    config = replace(CONFIG, ema=0.9, monitor="mine")
    run = train(tmp_path, config=config, metrics={"mine": lambda *_: math.nan})
    assert same(rnf.load(tmp_path).state_dict(), run.flow.state_dict())
