import os
import pickle

import numpy as np
import pytest

from rectangular_flows.data import DataError
from rectangular_flows.data.safe_pickle import read_frame

from .made import Call, Name, array, frame, index, labels, old_index, opcodes, python2, rows

FLOATS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]])
COUNTS = np.array([[7, 8, 9]])
WANTED = np.array([[1, 7, 4], [2, 8, 5], [3, 9, 6.5]])


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "f.pickle"
        path.write_bytes(content if isinstance(content, bytes) else python2(content))
        return read_frame(path)

    return read


def published(first=("Time", "R1"), second=("n",)):
    axes = [index(["Time", "n", "R1"]), rows(3)]
    values = [array(FLOATS, fortran=True), array(COUNTS, "i8", ">")]
    places = [Call(Name("__builtin__", "slice"), (0, 3, 2)), array([1], "i8")]
    blocks = [{"values": v, "mgr_locs": p} for v, p in zip(values, places, strict=True)]
    items = [index(list(first)), index(list(second))]
    return frame((axes, values, items, {"0.14.1": {"axes": axes, "blocks": blocks}}))


def test_frame_of_python_2(read):
    columns, values = read(published())
    assert columns == ("Time", "n", "R1")
    np.testing.assert_array_equal(values, WANTED)
    assert values.dtype == np.float64


@pytest.mark.parametrize("wrapped", [True, False])
def test_frame_from_before_pandas_0_14(read, wrapped):
    axes = [old_index(["Time", "n", "R1"]), rows(3)]
    state = (axes, [array(FLOATS), array(COUNTS, "i8")], [old_index(["Time", "R1"]), old_index(["n"])])
    columns, values = read(frame(state, wrapped))
    assert columns == ("Time", "n", "R1")
    np.testing.assert_array_equal(values, WANTED)


def test_frame_in_protocol_0(read):
    whole = published()
    base = Name("__builtin__", "object")
    manager = whole.state["_data"]
    made = (
        Call(Name("copy_reg", "_reconstructor"), (each.function, base, None), state)
        for each, state in ((manager, manager.state), (whole, whole.state))
    )
    manager, whole = made
    whole.state = {"_data": manager}
    np.testing.assert_array_equal(read(whole)[1], WANTED)


def test_large_frames_keep_every_bit(read):
    values = np.random.default_rng(0).standard_normal((3, 1000))
    axes = [index(["a", "b", "c"]), rows(1000)]
    np.testing.assert_array_equal(read(frame((axes, [array(values)], [index(["a", "b", "c"])])))[1], values.T)


@pytest.fixture
def target(tmp_path):
    """A file that hostile pickles try to make."""
    target = tmp_path / "made"
    yield target
    assert not target.exists()


def hostile(target):
    command = f"touch {target}"
    code = f"__import__('pathlib').Path({str(target)!r}).touch()"

    class Reduces:
        def __init__(self, function, *args):
            self.call = function, args

        def __reduce__(self):
            return self.call

    system = opcodes(Name("os", "system"))
    text = opcodes(command)
    good = opcodes(published())
    yield "os.system", pickle.dumps(Reduces(os.system, command))
    for protocol in range(6):
        yield f"eval, protocol {protocol}", pickle.dumps(Reduces(eval, code), protocol=protocol)
    yield "exec", pickle.dumps(Reduces(exec, code))
    yield "nested", pickle.dumps({"a": [1, (Reduces(os.system, command),)]})
    yield "in a frame's state", python2(frame((Call(Name("posix", "system"), (command,)), [], [])))
    yield "in an array's data", python2(array(FLOATS, of=("subprocess", "Popen")))
    yield "through the memo", b"\x80\x02" + system + b"q\x000h\x00" + opcodes((command,)) + b"R."
    yield "after a good frame", b"\x80\x02" + good + b"0" + system + opcodes((command,)) + b"R0" + good + b"."
    yield "INST", b"(" + text + b"ios\nsystem\n."
    yield "OBJ", b"(" + system + text + b"o."
    yield "NEWOBJ", b"\x80\x02" + opcodes(Name("subprocess", "Popen")) + opcodes((command,)) + b"\x81."
    dotted = b"\x80\x04\x8c\x06pandas\x8c\x12DataFrame.__init__\x93."
    yield "dotted name", dotted
    dotted = b"DataFrame.__init__.__globals__"
    yield "dotted further", b"\x80\x04\x8c\x06pandas\x8c" + bytes([len(dotted)]) + dotted + b"\x93."
    yield "getattr", python2(Call(Name("__builtin__", "getattr"), (Name("os", "path"), "os")))
    yield "__import__", python2(Call(Name("__builtin__", "__import__"), ("os",)))
    yield "numpy's own exec", python2(Call(Name("numpy.testing._private.utils", "runstring"), (code, {})))
    yield "pandas's eval", python2(Call(Name("pandas", "eval"), (code,)))
    yield "pandas's read_pickle", python2(Call(Name("pandas", "read_pickle"), (str(target),)))
    yield "apply", python2(Call(Name("__builtin__", "apply"), (Name("os", "system"), [command])))
    yield "lookalike module", python2(Name("pandas_evil", "DataFrame"))
    yield "persistent id", b"\x80\x02" + text + b"Q."
    yield "extension", b"\x80\x02\x82\x01."
    yield (
        "attributes of a class",
        b"\x80\x02" + opcodes(Name("pandas", "DataFrame")) + b"N}X\x04\x00\x00\x00nameK\x01s\x86b.",
    )
    maker = opcodes(Name("copy_reg", "_reconstructor"))
    yield "attributes of a function", b"\x80\x02" + maker + b"N}X\x0c\x00\x00\x00__defaults__)s\x86b."
    yield "remaking a class that is none", python2(Call(Name("copy_reg", "_reconstructor"), ("os", 1, None)))
    yield "output buffer", b"\x80\x05\x97."
    yield "huge memo index", b"\x80\x02Nr\xf0\xff\xff\xff."
    yield "huge string", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f."
    yield "deep nesting", b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."
    yield "a plain list", pickle.dumps([1.0, 2.0])
    yield "cut off", good[:300]
    yield "not a pickle", b"PK\x03\x04"
    yield "nothing", b""


@pytest.mark.parametrize("case", [name for name, _ in hostile("x")])
def test_hostile_pickles_do_nothing(read, case, target, monkeypatch):
    imported = []
    monkeypatch.setattr("builtins.__import__", _spy(imported))
    content = dict(hostile(target))[case]
    imported.clear()
    with pytest.raises(DataError, match="Expected a pickled DataFrame"):
        read(content)
    assert not {name.split(".")[0] for name in imported} & {"os", "posix", "nt", "subprocess", "pandas", "pandas_evil"}


def _spy(names, real=__import__):
    def spy(name, *args, **options):
        names.append(name)
        return real(name, *args, **options)

    return spy


def test_the_hostile_pickles_are_real(tmp_path):
    """Plain pickle does what the first of them asks for, or the tests above would prove nothing."""
    cases = dict(hostile(tmp_path / "made"))
    pickle.loads(cases["eval, protocol 2"])  # noqa: S301
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (published(["Time", "Time"]), "does not hold numbers for each of 'Time', 'n', 'R1' once"),
        (published(["Time", "x"]), "ValueError"),
        (published(["Time"]), "ValueError"),
        (published(["Time", "R1"], ["R1"]), "for each of"),
        (frame(([index(["a"]), rows(2)], [array([["x", "y"]], "S1", "|")], [index(["a"])])), "type 'S1'"),
        (frame(([index(["a"]), rows(2)], [labels(["x", "y"])], [index(["a"])])), "type 'O8'"),
        (frame(([index(["a"]), rows(2)], [array([1.0, 2.0])], [index(["a"])])), "make no table"),
        (frame(([index(["a", None]), rows(2)], [array([[1.0, 2.0]])], [index(["a"])])), "other things than text"),
        (Call(Name("pandas", "DataFrame"), ()), "in place of a 'BlockManager'"),
        (index(["a"]), "holds a '_new_Index' in place of a 'DataFrame'"),
    ],
)
def test_frames_that_are_no_tables_of_numbers(read, thing, message):
    with pytest.raises(DataError, match=message):
        read(thing)


@pytest.mark.parametrize("shape", [(1, 3), (1, -2), (2**31 - 1, 2**31 - 1), "ab"])
def test_arrays_that_lie_about_their_shape(read, shape):
    lie = array([[1.0, 2.0]])
    lie.state = (1, shape, *lie.state[2:])
    with pytest.raises(DataError, match=r"bytes for an array|without a shape"):
        read(frame(([index(["a"]), rows(2)], [lie], [index(["a"])])))
