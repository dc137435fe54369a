"""``rnf sweep``: every combination, what failed beside the rest, and what a rerun does."""

import csv
import importlib.util
import json
import math
import statistics

import pytest

from rectangular_flows.cli import main
from rectangular_flows.runs import jobs
from rectangular_flows.training.history import read_history


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A file of settings, in the folder of the test; jobs run in this process, one after another."""
    (tmp_path / "small.toml").write_text('data = "circle"\nepochs = 1\nscatter = false\n')
    monkeypatch.chdir(tmp_path)

    class Here(jobs.Worker):
        running = False

        def start(self):
            started.append(self.job.title)
            self.outcome = jobs.outcome_of(self.job, self.fresh)

        def stop(self):
            pass

    started = []
    monkeypatch.setattr(jobs, "_Worker", Here)
    return started


SWEEP = ["sweep", "small.toml", "--preset", "circle-ml"]


def test_a_sweep_writes_its_table_figure_and_results_and_goes_on_where_it_was(settings, tmp_path, capsys):
    axes = ["--over", "beta=10,-1", "--over", "seed=0..1"]
    assert main([*SWEEP, *axes]) == 2  # before anything runs
    assert "expected a positive beta" in capsys.readouterr().err
    axes = ["--over", "data=circle,absent.csv", "--over", "seed=0..1", "--out", "all"]
    assert main([*SWEEP, *axes]) == 1
    said = capsys.readouterr().out
    assert "2 of 4 runs failed" in said
    assert settings == [f"data {data}, seed {seed}" for data in ("circle", "absent.csv") for seed in (0, 1)]
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    assert [run["state"] for run in results["runs"]] == ["done", "done", "failed", "failed"]
    assert "absent.csv" in results["runs"][2]["failure"]
    histories = [read_history(tmp_path / "all" / f"data=circle,seed={seed}")[-1] for seed in (0, 1)]
    expected = [line.negative_log_likelihood for line in histories]
    assert [run["nll"] for run in results["runs"][:2]] == pytest.approx(expected)
    group = results["groups"][0]
    assert (group["values"], group["runs"]) == ({"data": "circle"}, 2)
    assert group["mean"]["nll"] == pytest.approx(statistics.mean(expected))
    assert group["error"]["nll"] == pytest.approx(abs(expected[0] - expected[1]) / 2)  # s/√n of two
    with (tmp_path / "all" / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["seed"] for line in lines] == ["0", "1", "0", "1"]
    assert math.isnan(float(lines[3]["nll"]))
    assert (tmp_path / "all" / "results.png").stat().st_size > 5_000
    settings.clear()
    assert main([*SWEEP, *axes]) == 1  # only what failed runs again
    assert settings == [f"data absent.csv, seed {seed}" for seed in (0, 1)]


@pytest.mark.filterwarnings("ignore::rectangular_flows.training.budget.ShortTimeWarning")
def test_what_a_run_decides_itself_is_no_other_setting(settings, tmp_path, capsys):
    """A relative path, a latent dimension and epochs that the run chose: the rerun knows it."""
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"{math.cos(i)},{math.sin(i)}\n" for i in range(400)))
    (tmp_path / "small.toml").write_text(
        'data = "rows.csv"\nlatent_dim = 1\nscatter = false\nepochs = "auto"\ntime = 0.1\n'
    )
    for count in (1, 1):
        assert main(["sweep", "small.toml", "--over", "seed=3", "--out", "one"]) == 0, capsys.readouterr().err
        assert len(settings) == count
    (tmp_path / "small.toml").write_text('data = "rows.csv"\nlatent_dim = 1\nscatter = false\nepochs = 2\n')
    assert main(["sweep", "small.toml", "--over", "seed=3", "--out", "one"]) == 2
    assert "holds a run with other settings" in capsys.readouterr().err


def test_without_ray_the_message_says_how_to_get_it(settings, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main([*SWEEP, "--over", "seed=0", "--launcher", "ray"]) == 2
    assert "pip install 'rectangular-flows[ray]'" in capsys.readouterr().err
    assert main([*SWEEP, "--over", "seed=0", "--address", "auto"]) == 2
    assert "--address is for --launcher ray" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_a_sweep_on_a_local_ray(tmp_path, monkeypatch):
    """One run fails, one is done; a rerun trains neither again that is done."""
    (tmp_path / "small.toml").write_text('data = "circle"\nepochs = 1\nscatter = false\n')
    monkeypatch.chdir(tmp_path)
    command = [*SWEEP, "--over", "data=circle,absent.csv", "--out", "all", "--launcher", "ray"]
    assert main(command) == 1
    runs = json.loads((tmp_path / "all" / "results.json").read_text())["runs"]
    assert [run["state"] for run in runs] == ["done", "failed"]
    assert "absent.csv" in runs[1]["failure"]
    import ray

    ray.shutdown()


def test_the_settings_of_a_run_are_no_more_than_a_preset(settings, tmp_path, monkeypatch, capsys):
    """Those that do not apply any more are dropped; in a file of one's own they are a mistake."""
    seen = []
    monkeypatch.setattr(jobs, "run_jobs", lambda found, *_, **__: seen.extend(found) or [jobs.Outcome()] * len(found))
    own = 'data = "circle"\nlatent_dim = 1\nlatent = "mixture"\nlatent_components = 3\n'
    (tmp_path / "own.toml").write_text(own)
    over = ["--over", "latent=mixture,realnvp", "--out", "all"]
    assert main(["sweep", "own.toml", *over]) == 2
    assert "latent_components" in capsys.readouterr().err
    assert seen == []
    (tmp_path / "run.toml").write_text(own + '[record]\nrectangular_flows = "0.1"\n')
    main(["sweep", "run.toml", *over])
    assert [job.settings.get("latent_components") for job in seen] == [3, None]
    assert [job.settings["latent"] for job in seen] == ["mixture", "realnvp"]
