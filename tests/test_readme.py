"""The examples of the README run."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.parametrize("code", BLOCKS)
def test_example(code, capsys):
    torch.manual_seed(0)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "tensor" in capsys.readouterr().out
    assert names["flow"].reconstruction_error(names["data"]).mean() < 0.01


def test_there_is_an_example():
    assert BLOCKS


def test_pictures_are_there():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / path).is_file(), path
