from dataclasses import dataclass
from typing import Literal

import pytest

from rectangular_flows.kinds import (
    Chosen,
    Nothing,
    Table,
    choice,
    choices_of,
    convert,
    flat,
    make,
    metavar_of,
    only,
    when,
)


@dataclass(frozen=True)
class Inner:
    """Of b.

    Args:
        depth: how deep,
            in metres.
    """

    depth: int = 2


@dataclass(frozen=True)
class Middle:
    """Of two.

    Args:
        inner: a or b.
    """

    inner: Chosen = choice({"a": Nothing, "b": Inner}, "a")
    shared: float = 1.0


@dataclass(frozen=True)
class Outer:
    """All.

    Args:
        outer: one or two.
        size: of it.
        extra: for large ones.
    """

    outer: Chosen = choice({"one": Nothing, "two": Middle}, "one")
    size: int = 0
    extra: bool = only(True, when("size"))


TABLE = Table(Outer)


def test_a_flat_mapping_makes_a_tree_and_comes_back():
    values = {"outer": "two", "inner": "b", "depth": 5}
    made = make(Outer, TABLE.sift(values))
    assert made == Outer(Chosen("two", Middle(Chosen("b", Inner(5)))))
    assert flat(made) == {"outer": "two", "inner": "b", "depth": 5, "shared": 1.0, "size": 0, "extra": True}
    assert TABLE.sift({}, flat(made)) == {"outer": "two", "inner": "b", "depth": 5, "shared": 1.0, "size": 0}


def test_what_is_said_of_settings():
    found = TABLE.settings()
    assert list(found) == ["outer", "inner", "depth", "shared", "size", "extra"]
    assert found["depth"].help == "how deep, in metres."
    assert TABLE.scope("depth") == "inner = b"
    assert found["inner"].hint == Literal["a", "b"]
    assert found["outer"].default == "one"
    assert TABLE.scope("extra") == "a run with size"
    assert TABLE.scope("size") == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": 1}, "depth is for inner = b; inner is for outer = two; this run has outer = one. Leave it out, or add "
                       "--outer two --inner b"),
        ({"outer": "two", "depth": 1}, "depth is for inner = b; this run has inner = a. Leave it out, or add --inner b"),
        ({"extra": True}, "extra is for a run with size; this run has size = 0. Leave it out"),
        ({"outer": "three"}, "outer: expected one of one, two; got three"),
        ({"dept": 1}, "unknown setting 'dept'. Did you mean 'depth'?"),
    ],
)  # fmt: skip
def test_refusals(given, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole message is compared)
        TABLE.sift(given)
    assert str(error.value) == message


def test_a_choice_that_is_dropped_takes_its_settings_with_it():
    assert TABLE.sift({"outer": "one"}, {"outer": "two", "inner": "b", "depth": 3, "size": 4}) == {
        "outer": "one",
        "size": 4,
    }


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("3", int, 3),
        (3.0, int, 3),
        (3, float, 3.0),
        ("1e-3", float, 1e-3),
        ("none", float | None, None),
        (None, float | None, None),
        ("none", Literal["none", "lu"], "none"),
        ("auto", int | Literal["auto"], "auto"),
        ("12", int | Literal["auto"], 12),
        ([1, 2], tuple[int, ...], (1, 2)),
        ("1, 2", tuple[int, ...], (1, 2)),
        ("", tuple[int, ...], ()),
        ('["a,b", "c"]', tuple[str, ...], ("a,b", "c")),
        ("12", str | None, "12"),
        (True, bool, True),
    ],
)
def test_values(value, hint, expected):
    found = convert("it", value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, int, "it: expected a whole number; got True"),
        (1, bool, "it: expected true or false; got 1"),
        (3, str | None, "it: expected text or none; got 3"),
        ("1,x", tuple[float, float], "it: expected two numbers such as 25,50; got 1,x"),
        ([1, 2, 3], tuple[float, float], r"two numbers such as 25,50; got \[1, 2, 3\]"),
        ("[1,", tuple[int, ...], r"whole numbers such as 64,64; got \[1,"),
        (5, tuple[int, ...], "whole numbers such as 64,64; got 5"),
        ("b", Literal["a"] | None, "it: expected one of a, none; got b"),
        ("x", int | Literal["auto"] | None, "it: expected a whole number or auto or none; got x"),
    ],
)
def test_impossible_values(value, hint, message):
    with pytest.raises(ValueError, match=message):
        convert("it", value, hint)


def test_how_values_are_shown():
    assert choices_of(Literal["a", "b"] | None) == ("a", "b", "none")
    assert choices_of(int | Literal["auto"]) == ()
    assert [metavar_of(hint) for hint in (int | Literal["auto"], tuple[str, ...] | None, float)] == ["N", "NAME,…", "X"]
