import subprocess

import pytest

from rectangular_flows.densities import LATENTS
from tests.cli.command import run


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "rnf.sh"
    path.write_text(run("completion", "bash").stdout)
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rnf re", "report reproduce"),
        ("rnf fit --method ''", "ml two-step"),
        ("rnf fit --volu", "--volume --volume-variance --volume-fraction"),
        ("rnf fit --no-act", "--no-actnorm"),
        ("rnf fit --latent ''", " ".join(LATENTS)),
        ("rnf fit --preset image", "image-best image-fast image-fast-two-step"),
        ("rnf reproduce ci", "circle"),
        ("rnf data l", "list"),
        ("rnf sample --co", "--count"),
    ],
)
def test_bash(script, words, expected):
    position = len(words.split()) - 1
    line = f'source {script}; COMP_WORDS=({words}); COMP_CWORD={position}; _rnf; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_zsh_begins_with_its_own_line():
    assert run("completion", "zsh").stdout.splitlines()[1] == "autoload -U +X bashcompinit && bashcompinit"
