"""Numbers kept beside a model."""

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
