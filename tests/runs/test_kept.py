"""Numbers kept beside a model."""

import hashlib
import json

from rectangular_flows.runs.kept import kept


def test_kept_numbers_belong_to_one_model_and_one_key(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    calls = []

    def ask(key):
        return kept(tmp_path, "file.json", key, lambda: calls.append(key) or {"value": len(calls)})

    assert [ask("a"), ask("b"), ask("a")] == [{"value": 1}, {"value": 2}, {"value": 1}]
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert ask("b") == {"value": 3}
    assert ask("a") == {"value": 4}
    (tmp_path / "file.json").write_text("{ damaged")
    assert ask("a") == {"value": 5}


def test_a_file_of_something_else_is_replaced(tmp_path):
    """Whatever JSON it holds, and whatever another process has added meanwhile stays."""
    (tmp_path / "model.safetensors").write_bytes(b"one")
    path = tmp_path / "file.json"
    for text in ("[1]", "{}", '{"model": "another", "results": {"a": 7}}'):
        path.write_text(text)
        assert kept(tmp_path, "file.json", "a", lambda: {"value": 1}) == {"value": 1}
        assert kept(tmp_path, "file.json", "a", lambda: {"value": 2}) == {"value": 1}
    stored = json.loads(path.read_text())
    assert stored == {"model": hashlib.sha256(b"one").hexdigest(), "results": {"a": {"value": 1}}}
    path.write_text(json.dumps({**stored, "results": [1]}))
    assert kept(tmp_path, "file.json", "a", lambda: {"value": 3}) == {"value": 3}

    def slow():
        kept(tmp_path, "file.json", "other", lambda: {"value": 5})
        return {"value": 4}

    assert kept(tmp_path, "file.json", "b", slow) == {"value": 4}
    assert json.loads(path.read_text())["results"] == {"a": {"value": 3}, "other": {"value": 5}, "b": {"value": 4}}
    assert path.read_text().endswith("}\n")
