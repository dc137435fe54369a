"""``make audit`` tells a weakness from data that could not be had."""

import json
import subprocess

import pytest

from tools import audit

FINE = {"name": "numpy", "version": "2.4", "vulns": []}
WEAK = {"name": "old", "version": "1.0", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "far", "skip_reason": "Dependency not found on PyPI and could not be audited: far (1.0)"}
OURS = {"name": "rectangular-flows", "skip_reason": "distribution marked as editable"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([FINE, OURS], 0, "1 packages looked up, 0 known weaknesses"),
        ([FINE, WEAK, UNKNOWN], 1, "old 1.0: CVE-1, mended in 1.1"),
        ([FINE, UNKNOWN], 2, "1 packages could not be looked up (far)"),
        ([], 2, "0 packages looked up"),
        (None, 2, "nothing was checked, because pip-audit failed: no network"),
    ],
)
def test_what_it_says(monkeypatch, capsys, packages, code, said):
    text = "" if packages is None else json.dumps({"dependencies": packages})
    answer = subprocess.CompletedProcess([], 1, text, "no network\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setattr("sys.argv", ["audit"])
    assert audit.main() == code
    assert said in "".join(capsys.readouterr())
