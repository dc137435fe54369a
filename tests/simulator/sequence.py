"""Random sequences of what people and machines do to a run, and a model of what must be true after each step.

The model knows which run is in the folder (the kind of its table and its seed), what a reader sees of it, which of its
files are damaged, and so what each command must do. A reader may see a state that the run had before a step or one that it
saves on its way to the end, never a third; what was trained to the end is bit for bit what it would have been undisturbed.
"""

import json
import random
import shutil

import numpy as np
import torch

from rectangular_flows.data.tables import read_table
from rectangular_flows.runs.saved import SavedRun
from rectangular_flows.storage.manifest import Stored
from rectangular_flows.training.folder import has_checkpoint, is_run
from rectangular_flows.training.history import read_history

from .world import (
    DAMAGED,
    FIT,
    KINDS,
    NAMES,
    ROWS,
    Trouble,
    carry_out,
    life,
    same_columns,
    same_rows,
    seen,
    table,
    write_table,
)

SEEDS = (0, 1)
STEPS = (4, 10)
_MODEL = ("model.safetensors", "model.json", "calibration.safetensors")
_STATES = ("checkpoint/state.safetensors", "checkpoint/previous.safetensors")
_HISTORY = ("metrics.jsonl", "metrics.csv")
_FILES = (*_MODEL, *_STATES, *_HISTORY, "manifest.json")
_STRANGERS = {"notes.txt": "mine", "figures/mine.png": "mine, too", "report.html.old": "an old page"}
_TROUBLES = {"": 9, "ENOSPC": 3, "EIO": 3, "killed": 5, "exit": 1, "SIGINT": 4, "SIGTERM": 1, "beside": 4}
_CALLS = {"fit": 190, "resume": 170, "score": 6, "evaluate": 6, "sample": 6}  # to the disk, about
_ACTIONS = {
    "fit": 4,
    "resume": 8,
    "score": 6,
    "evaluate": 2,
    "sample": 1,
    "show": 1,
    "report": 0.25,
    "corrupt": 4,
    "restore": 2,
    "table": 4,
    "move": 1,
    "stranger": 1,
}


class Sequence:
    """One sequence, by its seed.

    Args:
        seed: of every choice.
        folder: an empty one.
        tell: called with a line for each step.
    """

    def __init__(self, seed, folder, tell=lambda line: None):
        self.random, self.folder, self.tell = random.Random(seed), folder, tell
        self.name, self.kind = "run", "plain"
        self.possible = []  # runs that may be in the folder: (kind, seed)
        self.sees = {None}  # what a reader may see
        self.copies = {}  # of damaged files, as they were
        self.strangers, self.commands, self.words = {}, 0, ()
        write_table(folder, self.kind)

    @property
    def run(self):
        return self.folder / self.name

    def play(self):
        """Every step, then what a person does in the end: repair what is damaged, train to the end, score."""
        count = self.random.randint(*STEPS)
        for action in ["fit", *(self._choice(_ACTIONS) for _ in range(count - 1))]:
            getattr(self, f"_{action}")()
            self._check_always()
        self._end()

    # --- what happens outside of rnf

    def _table(self):
        self.kind = self.random.choice(KINDS)
        self.tell(f"table.csv becomes {self.kind}")
        write_table(self.folder, self.kind)

    def _move(self):
        if self.run.exists():
            new = {"run": "moved", "moved": "run"}[self.name]
            self.tell(f"{self.name} is renamed {new}")
            self.run.rename(self.folder / new)
            self.name = new

    def _stranger(self):
        name = self.random.choice(list(_STRANGERS))
        if self.possible and "manifest.json" not in self.copies and is_run(self.run):
            self.tell(f"{name} is put into the run folder")
            (self.run / name).parent.mkdir(exist_ok=True)
            (self.run / name).write_text(_STRANGERS[name])
            self.strangers[name] = _STRANGERS[name]

    def _corrupt(self):
        there = [name for name in _FILES if name not in self.copies and (self.run / name).is_file()]
        if not there or list(self.run.rglob("*.rnf-new")):  # files that are still to be moved to their names
            return
        name, how = (
            self._choice({name: 2 if name.endswith("tensors") else 1 for name in there}),
            self.random.choice(("flip", "flip", "cut", "delete", "exchange")),
        )
        file = self.run / name
        content = file.read_bytes()
        place = self.random.randrange(len(content)) if content else 0
        others = [other for other in (*_MODEL, *_STATES) if other != name and (self.run / other).is_file()]
        self.copies[name] = content
        file.unlink()  # it may be a hard link
        if how == "flip" and content:
            flipped = content[place] ^ (1 << self.random.randrange(8))
            file.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        elif how == "cut":
            file.write_bytes(content[:place])
        elif how == "exchange" and others and name != "manifest.json":
            file.write_bytes((self.run / self.random.choice(others)).read_bytes())
        elif name == "manifest.json":  # without it the folder is one of version 0.1
            file.write_bytes(content[:-2])
        if file.exists() and file.read_bytes() == content:
            del self.copies[name]
        self.tell(f"{how} {name}{f' at byte {place}' if how in ('flip', 'cut') else ''}")

    def _restore(self):
        if self.copies:
            self.tell(f"{', '.join(self.copies)} come from a copy")
            for name, content in self.copies.items():
                (self.run / name).parent.mkdir(exist_ok=True)
                (self.run / name).unlink(missing_ok=True)
                (self.run / name).write_bytes(content)
            self.copies = {}
            now = seen(self.run)
            assert now in self.sees, "a reader sees what nobody saved"
            self.sees = {now}

    # --- commands that write to the run

    def _fit(self):
        seed, overwrite = self.random.choice(SEEDS), self.random.random() < 0.6
        words = ["fit", "table.csv", *FIT, "--seed", str(seed), "--out", self.name, *["--overwrite"][: int(overwrite)]]
        self._train("fit", words, (self.kind, seed), vacant=overwrite or not self.possible)

    def _resume(self):
        self._train("resume", ["fit", "--resume", self.name, "--quiet"], None)

    def _train(self, what, words, new, vacant=True):
        """Begin a run, or continue the one that is there."""
        before, trouble = self._before(), self._trouble(what)
        can = self._can_resume() if new is None else vacant and "manifest.json" not in self.copies
        aims = [new] if new is not None else list(self.possible)
        done = self._carry_out(words, trouble)
        after = seen(self.run)
        if done.code == 0:
            ends = {one: life(*one).end for one in aims}
            second = self._second(trouble, done)
            if second and not done.locked and done.beside.code == 0:  # one after the other, in either order
                aims, ends = aims + second, {**ends, **{one: life(*one).end for one in second}}
            assert can or second, f"should have been refused: {done.said}"
            assert after in ends.values(), "not what an undisturbed run ends with"
            self.possible = [one for one, end in ends.items() if end == after]
            self.copies, self.sees = {}, {after}
            if trouble is None or trouble.kind == "beside":  # else it may have been the removal that failed
                self._nothing_hidden()
        elif done.beside is not None and done.beside.code == 0 and self._second(trouble, done):
            assert not done.locked
            second = self._second(trouble, done)
            self.possible = [one for one in second if life(*one).end == after]
            assert self.possible, "not what the second command's run ends with"
            self.copies, self.sees = {}, {after}
        elif trouble is None or trouble.kind == "beside":
            assert not can, f"refused: {done.said}"
            self._unchanged(before, done)
        else:
            self._interrupted(before, after, aims if can else [])

    def _interrupted(self, before, after, aims):
        """After a fault: the old state, or one on the way to the new end."""
        on_the_way = [one for one in aims if after in life(*one).states]
        old = after == before
        if after == DAMAGED:
            assert self.copies, "damaged by a fault"
        else:
            assert old or on_the_way, "a third state"
        kept = self.possible if old or after == DAMAGED else []
        self.possible = list(dict.fromkeys([*kept, *on_the_way]))
        if not (self.run / "manifest.json").exists():
            self.possible = []
        self._forget_repaired()
        ways = {state for one in aims for state in life(*one).states}
        self.sees = {after} if after != DAMAGED else self.sees | ways

    def _forget_repaired(self):
        """Files that are no longer the damaged ones: they were written again, or have gone."""
        if self.copies:
            try:
                stored = Stored(self.run)
            except ValueError:
                return
            still = {}
            for name, content in self.copies.items():
                try:
                    if name != "manifest.json" and name in stored:
                        stored.read(name)
                except ValueError:
                    still[name] = content
            self.copies = still

    def _second(self, trouble, done):
        """The runs that a second writing command may have made."""
        if trouble is None or trouble.kind != "beside" or done.beside is None or trouble.words[0] != "fit":
            return []
        if "--resume" in trouble.words:
            return list(self.possible)
        return [(self.kind, int(trouble.words[trouble.words.index("--seed") + 1]))]

    # --- commands that read it

    def _score(self):
        self._read("score", ["score", self.name, "table.csv", "-o", "scores.csv"], "scores.csv", self._check_scores)

    def _sample(self):
        self._read("sample", ["sample", self.name, "-n", "30", "-o", "samples.csv"], "samples.csv", self._check_samples)

    def _evaluate(self):
        self._read("evaluate", ["evaluate", self.name, "-n", "40"], f"{self.name}/evaluation.json", self._check_numbers)

    def _report(self):
        self._read("report", ["report", self.name], f"{self.name}/report.html", self._check_page)

    def _show(self):
        self._read("show", ["show", self.name], f"{self.name}/verdict.json", lambda path: None)

    def _read(self, what, words, output, check):
        """A command that must leave the run alone, and whose output is there as a whole or as it was."""
        path = self.folder / output
        old = path.read_bytes() if path.exists() else None
        before, trouble = self._before(), self._trouble(what) if what in _CALLS else None
        done = self._carry_out(words, trouble)
        second = done.beside is not None and trouble.words[0] == "fit" and done.beside.code == 0
        if second:
            after = seen(self.run)
            self.possible = [one for one in self._second(trouble, done) if life(*one).end == after]
            assert self.possible, "not what the second command's run ends with"
            self.copies, self.sees = {}, {after}
            return
        self._unchanged(before, done)
        if done.code == 0:
            assert isinstance(before, bytes), "there was nothing to read"
            check(path)
        else:
            now = path.read_bytes() if path.exists() else None
            if now != old:
                assert trouble is not None, "refused, and yet it wrote"
                check(path)
            elif trouble is None or trouble.kind == "beside":
                assert not self._can_read(what, before), f"refused: {done.said}"

    def _can_read(self, what, before):
        if not isinstance(before, bytes) or (what in ("evaluate", "report", "show") and self.copies):
            return False
        if what == "report" and not read_history(self.run):
            return False  # nothing to report yet
        return what == "sample" or all(same_columns(self.kind, kind) for kind, _ in self.possible)

    def _check_scores(self, path):
        """Every row has the score of its values, whatever the order of columns and rows."""
        saved, (names, rows) = SavedRun(self.run), table(self.kind)
        found = read_table(path, columns=["log_density", "reconstruction_error"]).values
        ordered = rows[:, [names.index(name) for name in saved.columns]]
        expected = saved.flow.score(torch.from_numpy(ordered.copy()).to(saved.flow.dtype))
        np.testing.assert_allclose(found[:, 0], expected.log_prob, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[:, 1], expected.squared_distance, rtol=1e-4, atol=1e-7)

    def _check_samples(self, path):
        assert read_table(path, columns=list(SavedRun(self.run).columns)).values.shape == (30, len(NAMES))

    def _check_numbers(self, path):
        numbers = json.loads(path.read_text())
        assert numbers["test_rows"] == ROWS // 10
        assert np.isfinite(numbers["negative_log_likelihood"])

    def _check_page(self, path):
        assert path.read_text().rstrip().endswith("</html>")

    # --- what they share

    def _choice(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    def _trouble(self, what):
        kind = self._choice(_TROUBLES)
        at = self.random.randint(1, _CALLS[what])
        if not kind:
            return None
        return Trouble(kind, at, self._beside() if kind == "beside" else ())

    def _beside(self):
        """A second command."""
        fit = ("fit", "table.csv", *FIT, "--seed", str(self.random.choice(SEEDS)), "--out", self.name, "--overwrite")
        others = (
            fit,
            ("fit", "--resume", self.name, "--quiet"),
            ("score", self.name, "table.csv", "-o", "second.csv"),
            ("sample", self.name, "-n", "5", "-o", "second.csv"),
        )
        return self.random.choice(others)

    def _carry_out(self, words, trouble):
        self.commands += 1
        done = carry_out(self.folder, words, trouble)
        ended = "died" if done.code is None else f"exit {done.code}"
        last = (done.said.strip().splitlines() or [""])[-1]
        self.tell(f"rnf {' '.join(words)}{f', with {trouble}' if trouble else ''}: {ended} {last[:160]}")
        deadly = trouble is not None and trouble.kind in ("killed", "exit", "SIGTERM")
        for one in (done, done.beside):
            if one is None:
                continue
            assert one.code in (0, 2, 130, 143) or (one.code is None and deadly), one.said
            assert "Traceback" not in one.said
            if one.code == 2 and not self.copies:
                assert "damaged" not in one.said, one.said
        if done.beside is not None:
            self.commands += 1
            code = done.beside.code
            self.tell(
                f"  beside it: exit {code}, {'locked' if done.locked else 'not locked'}: {done.beside.said[-160:]}"
            )
            if done.locked and trouble.words[0] == "fit":
                assert code == 2, "two writers at once"
        return done

    def _before(self):
        return seen(self.run)

    def _unchanged(self, before, done):
        assert seen(self.run) == before, f"changed by a command that should not: {done.said}"

    def _can_resume(self):
        if not self.possible or "manifest.json" in self.copies or not has_checkpoint(self.run):
            return False
        stored = Stored(self.run)  # a file may still have the name under which it was written
        states = [name for name in _STATES if stored.path(name).exists() and name not in self.copies]
        return bool(states) and all(same_rows(self.kind, kind) for kind, _ in self.possible)

    def _check_always(self):
        for name, text in self.strangers.items():
            assert (self.run / name).read_text() == text, f"{name} of somebody else has changed"
        now = seen(self.run)
        assert now in self.sees or (now == DAMAGED and self.copies), "a reader sees what nobody saved"

    def _nothing_hidden(self):
        hidden = [path.name for path in self.run.rglob(".*") if path.name != ".rnf-derived"]
        assert hidden == [], "temporary files stay"

    def _end(self):
        self.tell("in the end:")
        self._restore()
        kind = self.possible[0][0] if self.possible else self.kind
        self.kind = kind
        write_table(self.folder, kind)
        if self.possible and has_checkpoint(self.run):
            aims, words = self.possible, ["fit", "--resume", self.name, "--quiet"]
        else:
            aims = [(kind, 0)]
            words = ["fit", "table.csv", *FIT, "--seed", "0", "--out", self.name, "--overwrite"]
        done = self._carry_out(words, None)
        assert done.code == 0, done.said
        assert seen(self.run) in [life(*one).end for one in aims], "not what an undisturbed run ends with"
        self.sees = {seen(self.run)}
        self._nothing_hidden()
        self._check_always()
        done = self._carry_out(["score", self.name, "table.csv", "-o", "scores.csv"], None)
        assert done.code == 0, done.said
        self._check_scores(self.folder / "scores.csv")
        shutil.rmtree(self.folder)
