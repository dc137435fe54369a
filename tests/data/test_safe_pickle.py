import base64
import io
import os
import pickle
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rectangular_flows.data.safe_pickle import read_frame
from rectangular_flows.data.tables import DataError

# DataFrame of Time, n (int32), R1, R2, pickled by pandas itself
REAL = {
    "pandas 1.5.3, protocol 4": """
gASVigMAAAAAAACMEXBhbmRhcy5jb3JlLmZyYW1llIwJRGF0YUZyYW1llJOUKYGUfZQojARfbWdylIwecGFuZGFzLmNvcmUuaW50ZXJuYWxzLm
1hbmFnZXJzlIwMQmxvY2tNYW5hZ2VylJOUjBZwYW5kYXMuX2xpYnMuaW50ZXJuYWxzlIwPX3VucGlja2xlX2Jsb2NrlJOUjBVudW1weS5jb3Jl
Lm11bHRpYXJyYXmUjAxfcmVjb25zdHJ1Y3SUk5SMBW51bXB5lIwHbmRhcnJheZSTlEsAhZRDAWKUh5RSlChLAUsDSwOGlGgPjAVkdHlwZZSTlI
wCZjiUiYiHlFKUKEsDjAE8lE5OTkr/////Sv////9LAHSUYolDSAAAAAAAAAAAAAAAAAAA4D8AAAAAAADwPwAAAAAAANA/AAAAAAAA6D8AAAAA
AAD0PwAAAAAAAOA/AAAAAAAA+D8AAAAAAAAAwJR0lGJoDmgRSwCFlGgTh5RSlChLAUsDhZRoGIwCaTiUiYiHlFKUKEsDaBxOTk5K/////0r///
//SwB0lGKJQxgAAAAAAAAAAAIAAAAAAAAAAwAAAAAAAACUdJRiSwKHlFKUaAtoDmgRSwCFlGgTh5RSlChLAUsBSwOGlGgYjAJpNJSJiIeUUpQo
SwNoHE5OTkr/////Sv////9LAHSUYolDDAcAAAAIAAAACQAAAJR0lGKMCGJ1aWx0aW5zlIwFc2xpY2WUk5RLAUsCSwGHlFKUSwKHlFKUhpRdlC
iMGHBhbmRhcy5jb3JlLmluZGV4ZXMuYmFzZZSMCl9uZXdfSW5kZXiUk5RoP4wFSW5kZXiUk5R9lCiMBGRhdGGUaA5oEUsAhZRoE4eUUpQoSwFL
BIWUaBiMAk84lImIh5RSlChLA4wBfJROTk5K/////0r/////Sz90lGKJXZQojARUaW1llIwBbpSMAlIxlIwCUjKUZXSUYowEbmFtZZROdYaUUp
RoQYwZcGFuZGFzLmNvcmUuaW5kZXhlcy5yYW5nZZSMClJhbmdlSW5kZXiUk5R9lChoVU6MBXN0YXJ0lEsAjARzdG9wlEsDjARzdGVwlEsBdYaU
UpRlhpRSlIwEX3R5cJSMCWRhdGFmcmFtZZSMCV9tZXRhZGF0YZRdlIwFYXR0cnOUfZSMBl9mbGFnc5R9lIwXYWxsb3dzX2R1cGxpY2F0ZV9sYW
JlbHOUiHN1Yi4=
""",
    "pandas 2.2.3, protocol 5": """
gAWVjAMAAAAAAACMEXBhbmRhcy5jb3JlLmZyYW1llIwJRGF0YUZyYW1llJOUKYGUfZQojARfbWdylIwecGFuZGFzLmNvcmUuaW50ZXJuYWxzLm
1hbmFnZXJzlIwMQmxvY2tNYW5hZ2VylJOUjBZwYW5kYXMuX2xpYnMuaW50ZXJuYWxzlIwPX3VucGlja2xlX2Jsb2NrlJOUjBNudW1weS5fY29y
ZS5udW1lcmljlIwLX2Zyb21idWZmZXKUk5QoljAAAAAAAAAAAAAAAAAAAAAAAAAAAADQPwAAAAAAAOA/AAAAAAAA6D8AAAAAAADwPwAAAAAAAP
Q/lIwFbnVtcHmUjAVkdHlwZZSTlIwCZjiUiYiHlFKUKEsDjAE8lE5OTkr/////Sv////9LAHSUYksCSwOGlIwBRpR0lFKUjAhidWlsdGluc5SM
BXNsaWNllJOUSwBLBEsCh5RSlEsCh5RSlGgLaA4olgwAAAAAAAAABwAAAAgAAAAJAAAAlGgSjAJpNJSJiIeUUpQoSwNoFk5OTkr/////Sv////
9LAHSUYksBSwOGlIwBQ5R0lFKUaB5LAUsCSwGHlFKUSwKHlFKUaAtoDiiWGAAAAAAAAAAAAAAAAADgPwAAAAAAAPg/AAAAAAAAAMCUaBVLAUsD
hpRoKXSUUpRoHksDSwRLAYeUUpRLAoeUUpSHlF2UKIwYcGFuZGFzLmNvcmUuaW5kZXhlcy5iYXNllIwKX25ld19JbmRleJSTlGg6jAVJbmRleJ
STlH2UKIwEZGF0YZSMFm51bXB5Ll9jb3JlLm11bHRpYXJyYXmUjAxfcmVjb25zdHJ1Y3SUk5RoEIwHbmRhcnJheZSTlEsAhZRDAWKUh5RSlChL
AUsEhZRoEowCTziUiYiHlFKUKEsDjAF8lE5OTkr/////Sv////9LP3SUYoldlCiMBFRpbWWUjAFulIwCUjGUjAJSMpRldJRijARuYW1llE51hp
RSlGg8jBlwYW5kYXMuY29yZS5pbmRleGVzLnJhbmdllIwKUmFuZ2VJbmRleJSTlH2UKGhWTowFc3RhcnSUSwCMBHN0b3CUSwOMBHN0ZXCUSwF1
hpRSlGWGlFKUjARfdHlwlIwJZGF0YWZyYW1llIwJX21ldGFkYXRhlF2UjAVhdHRyc5R9lIwGX2ZsYWdzlH2UjBdhbGxvd3NfZHVwbGljYXRlX2
xhYmVsc5SIc3ViLg==
""",
    "pandas 3.1.1 with pyarrow, protocol 5": """
gAWVCgQAAAAAAACMBnBhbmRhc5SMCURhdGFGcmFtZZSTlCmBlH2UKIwEX21ncpSMHnBhbmRhcy5jb3JlLmludGVybmFscy5tYW5hZ2Vyc5SMDE
Jsb2NrTWFuYWdlcpSTlIwWcGFuZGFzLl9saWJzLmludGVybmFsc5SMD191bnBpY2tsZV9ibG9ja5STlIwTbnVtcHkuX2NvcmUubnVtZXJpY5SM
C19mcm9tYnVmZmVylJOUKJYwAAAAAAAAAAAAAAAAAAAAAAAAAAAA4D8AAAAAAADwPwAAAAAAANA/AAAAAAAA6D8AAAAAAAD0P5SMBW51bXB5lI
wFZHR5cGWUk5SMAmY4lImIh5RSlChLA4wBPJROTk5K/////0r/////SwB0lGJLAksDhpSMAUOUdJRSlIwIYnVpbHRpbnOUjAVzbGljZZSTlEsA
SwRLAoeUUpRLAoeUUpRoC2gOKJYMAAAAAAAAAAcAAAAIAAAACQAAAJRoEowCaTSUiYiHlFKUKEsDaBZOTk5K/////0r/////SwB0lGJLAUsDhp
RoGXSUUpRoHksBSwJLAYeUUpRLAoeUUpRoC2gOKJYYAAAAAAAAAAAAAAAAAOA/AAAAAAAA+D8AAAAAAAAAwJRoFUsBSwOGlGgZdJRSlGgeSwNL
BEsBh5RSlEsCh5RSlIeUXZQojBhwYW5kYXMuY29yZS5pbmRleGVzLmJhc2WUjApfbmV3X0luZGV4lJOUaACMBUluZGV4lJOUfZQojARkYXRhlI
wNcGFuZGFzLmFycmF5c5SMEEFycm93U3RyaW5nQXJyYXmUk5QpgZR9lCiMCV9wYV9hcnJheZSMC3B5YXJyb3cubGlilIwOX3Jlc3RvcmVfYXJy
YXmUk5QoaEaMDnR5cGVfZm9yX2FsaWFzlJOUjAxsYXJnZV9zdHJpbmeUhZRSlEsESwBLAF2UKE5oRowJcHlfYnVmZmVylJOUligAAAAAAAAAAA
AAAAAAAAAEAAAAAAAAAAUAAAAAAAAABwAAAAAAAAAJAAAAAAAAAJSFlFKUaFCWCQAAAAAAAABUaW1lblIxUjKUhZRSlGVdlE50lIWUUpSMBl9k
dHlwZZRoAIwLU3RyaW5nRHR5cGWUk5SMB3B5YXJyb3eUR3/4AAAAAAAAhpRSlIwGX2NhY2hllH2UdWKMBG5hbWWUTnWGlFKUaDtoAIwKUmFuZ2
VJbmRleJSTlH2UKGhjTowFc3RhcnSUSwCMBHN0b3CUSwOMBHN0ZXCUSwF1hpRSlGWGlFKUjARfdHlwlIwJZGF0YWZyYW1llIwJX21ldGFkYXRh
lF2UjAVhdHRyc5R9lIwGX2ZsYWdzlH2UjBdhbGxvd3NfZHVwbGljYXRlX2xhYmVsc5SIc3ViLg==
""",
    "pandas 3.1.1 with pyarrow, protocol 2": """
gAJjcGFuZGFzCkRhdGFGcmFtZQpxACmBcQF9cQIoWAQAAABfbWdycQNjcGFuZGFzLmNvcmUuaW50ZXJuYWxzLm1hbmFnZXJzCkJsb2NrTWFuYW
dlcgpxBGNwYW5kYXMuX2xpYnMuaW50ZXJuYWxzCl91bnBpY2tsZV9ibG9jawpxBWNudW1weS5fY29yZS5tdWx0aWFycmF5Cl9yZWNvbnN0cnVj
dApxBmNudW1weQpuZGFycmF5CnEHSwCFcQhjX2NvZGVjcwplbmNvZGUKcQlYAQAAAGJxClgGAAAAbGF0aW4xcQuGcQxScQ2HcQ5ScQ8oSwFLAk
sDhnEQY251bXB5CmR0eXBlCnERWAIAAABmOHESiYiHcRNScRQoSwNYAQAAADxxFU5OTkr/////Sv////9LAHRxFmKJaAlYNQAAAAAAAAAAAAAA
AAAAAAAAw6A/AAAAAAAAw7A/AAAAAAAAw5A/AAAAAAAAw6g/AAAAAAAAw7Q/cRdoC4ZxGFJxGXRxGmJjX19idWlsdGluX18Kc2xpY2UKcRtLAE
sESwKHcRxScR1LAodxHlJxH2gFaAZoB0sAhXEgaA2HcSFScSIoSwFLAUsDhnEjaBFYAgAAAGk0cSSJiIdxJVJxJihLA2gVTk5OSv////9K////
/0sAdHEnYoloCVgMAAAABwAAAAgAAAAJAAAAcShoC4ZxKVJxKnRxK2JoG0sBSwJLAYdxLFJxLUsCh3EuUnEvaAVoBmgHSwCFcTBoDYdxMVJxMi
hLAUsBSwOGcTNoFIloCVgbAAAAAAAAAAAAw6A/AAAAAAAAw7g/AAAAAAAAAMOAcTRoC4ZxNVJxNnRxN2JoG0sDSwRLAYdxOFJxOUsCh3E6UnE7
h3E8XXE9KGNwYW5kYXMuY29yZS5pbmRleGVzLmJhc2UKX25ld19JbmRleApxPmNwYW5kYXMKSW5kZXgKcT99cUAoWAQAAABkYXRhcUFjcGFuZG
FzLmFycmF5cwpBcnJvd1N0cmluZ0FycmF5CnFCKYFxQ31xRChYCQAAAF9wYV9hcnJheXFFY3B5YXJyb3cubGliCl9yZXN0b3JlX2FycmF5CnFG
KGNweWFycm93LmxpYgp0eXBlX2Zvcl9hbGlhcwpxR1gMAAAAbGFyZ2Vfc3RyaW5ncUiFcUlScUpLBEsASwBdcUsoTmNweWFycm93LmxpYgpweV
9idWZmZXIKcUxjX19idWlsdGluX18KYnl0ZWFycmF5CnFNaAlYKAAAAAAAAAAAAAAABAAAAAAAAAAFAAAAAAAAAAcAAAAAAAAACQAAAAAAAABx
TmgLhnFPUnFQhXFRUnFShXFTUnFUaExoTWgJWAkAAABUaW1lblIxUjJxVWgLhnFWUnFXhXFYUnFZhXFaUnFbZV1xXE50cV2FcV5ScV9YBgAAAF
9kdHlwZXFgY3BhbmRhcwpTdHJpbmdEdHlwZQpxYVgHAAAAcHlhcnJvd3FiR3/4AAAAAAAAhnFjUnFkWAYAAABfY2FjaGVxZX1xZnViWAQAAABu
YW1lcWdOdYZxaFJxaWg+Y3BhbmRhcwpSYW5nZUluZGV4CnFqfXFrKGhnTlgFAAAAc3RhcnRxbEsAWAQAAABzdG9wcW1LA1gEAAAAc3RlcHFuSw
F1hnFvUnFwZYZxcVJxclgEAAAAX3R5cHFzWAkAAABkYXRhZnJhbWVxdFgJAAAAX21ldGFkYXRhcXVdcXZYBQAAAGF0dHJzcXd9cXhYBgAAAF9m
bGFnc3F5fXF6WBcAAABhbGxvd3NfZHVwbGljYXRlX2xhYmVsc3F7iHN1Yi4=
""",
    "pandas 3.1.1 without pyarrow, protocol 5": """
gAWV8QMAAAAAAACMBnBhbmRhc5SMCURhdGFGcmFtZZSTlCmBlH2UKIwEX21ncpSMHnBhbmRhcy5jb3JlLmludGVybmFscy5tYW5hZ2Vyc5SMDE
Jsb2NrTWFuYWdlcpSTlIwWcGFuZGFzLl9saWJzLmludGVybmFsc5SMD191bnBpY2tsZV9ibG9ja5STlIwTbnVtcHkuX2NvcmUubnVtZXJpY5SM
C19mcm9tYnVmZmVylJOUKJYwAAAAAAAAAAAAAAAAAAAAAAAAAAAA4D8AAAAAAADwPwAAAAAAANA/AAAAAAAA6D8AAAAAAAD0P5SMBW51bXB5lI
wFZHR5cGWUk5SMAmY4lImIh5RSlChLA4wBPJROTk5K/////0r/////SwB0lGJLAksDhpSMAUOUdJRSlIwIYnVpbHRpbnOUjAVzbGljZZSTlEsA
SwRLAoeUUpRLAoeUUpRoC2gOKJYMAAAAAAAAAAcAAAAIAAAACQAAAJRoEowCaTSUiYiHlFKUKEsDaBZOTk5K/////0r/////SwB0lGJLAUsDhp
RoGXSUUpRoHksBSwJLAYeUUpRLAoeUUpRoC2gOKJYYAAAAAAAAAAAAAAAAAOA/AAAAAAAA+D8AAAAAAAAAwJRoFUsBSwOGlGgZdJRSlGgeSwNL
BEsBh5RSlEsCh5RSlIeUXZQojBhwYW5kYXMuY29yZS5pbmRleGVzLmJhc2WUjApfbmV3X0luZGV4lJOUaACMBUluZGV4lJOUfZQojARkYXRhlI
wTcGFuZGFzLl9saWJzLmFycmF5c5SMHF9fcHl4X3VucGlja2xlX05EQXJyYXlCYWNrZWSUk5SMDXBhbmRhcy5hcnJheXOUjAtTdHJpbmdBcnJh
eZSTlEofBvEEToeUUpRoAIwLU3RyaW5nRHR5cGWUk5SMBnB5dGhvbpRHf/gAAAAAAACGlFKUjBZudW1weS5fY29yZS5tdWx0aWFycmF5lIwMX3
JlY29uc3RydWN0lJOUaBCMB25kYXJyYXmUk5RLAIWUQwFilIeUUpQoSwFLBIWUaBKMAk84lImIh5RSlChLA4wBfJROTk5K/////0r/////Sz90
lGKJXZQojARUaW1llIwBbpSMAlIxlIwCUjKUZXSUYoaUYowEbmFtZZROdYaUUpRoO2gAjApSYW5nZUluZGV4lJOUfZQoaGNOjAVzdGFydJRLAI
wEc3RvcJRLA4wEc3RlcJRLAXWGlFKUZYaUUpSMBF90eXCUjAlkYXRhZnJhbWWUjAlfbWV0YWRhdGGUXZSMBWF0dHJzlH2UjAZfZmxhZ3OUfZSM
F2FsbG93c19kdXBsaWNhdGVfbGFiZWxzlIhzdWIu
""",
}


@dataclass
class Name:
    """A global of the pickle, module and name."""

    module: str
    name: str


@dataclass
class Call:
    """A call of such a name, and the state given to the result."""

    function: Any
    args: tuple
    state: Any = None


def opcodes(thing):
    """Protocol 2 as Python 2 wrote it: its strings, which also hold the numbers, are byte strings."""
    match thing:
        case None:
            return b"N"
        case bool():
            return b"\x88" if thing else b"\x89"
        case int():
            return b"J" + struct.pack("<i", thing)
        case bytes() | str():
            raw = thing.encode() if isinstance(thing, str) else thing
            return b"T" + struct.pack("<i", len(raw)) + raw
        case tuple() | list():
            return b"(" + b"".join(map(opcodes, thing)) + (b"t" if isinstance(thing, tuple) else b"l")
        case dict():
            return b"(" + b"".join(opcodes(k) + opcodes(v) for k, v in thing.items()) + b"d"
        case Name(module, name):
            return f"c{module}\n{name}\n".encode()
        case Call(function, args, state):
            made = opcodes(function) + opcodes(args) + b"R"
            return made if state is None else made + opcodes(state) + b"b"
    raise TypeError(thing)


def python2(thing):
    return io.BytesIO(b"\x80\x02" + opcodes(thing) + b".")


def dtype(code, order="<"):
    return Call(Name("numpy", "dtype"), (code, 0, 1), (3, order, None, None, None, -1, -1, 0))


def array(values, code="f8", order="<", fortran=False, of=("numpy", "ndarray")):
    values = np.asarray(values)
    raw = values.astype(order.strip("|") + code).tobytes("F" if fortran else "C")
    state = (1, values.shape, dtype(code, order), fortran, raw)
    return Call(Name("numpy.core.multiarray", "_reconstruct"), (Name(*of), (0,), "b"), state)


def labels(names, **options):
    state = (1, (len(names),), dtype("O8", "|"), False, list(names))
    return Call(Name("numpy.core.multiarray", "_reconstruct"), (Name("numpy", "ndarray"), (0,), "b"), state)


def index(names):
    arguments = (Name("pandas.core.index", "Index"), {"data": labels(names), "name": None})
    return Call(Name("pandas.core.index", "_new_Index"), arguments)


def old_index(names):
    """Before pandas 0.15 an index was an array."""
    state = ((1, (len(names),), dtype("O8", "|"), False, list(names)), (None,))
    return Call(Name("numpy.core.multiarray", "_reconstruct"), (Name("pandas.core.index", "Index"), (0,), "b"), state)


def frame(manager_state, wrapped=True):
    manager = Call(Name("pandas.core.internals", "BlockManager"), (), manager_state)
    state = {"_typ": "dataframe", "_metadata": [], "_data": manager} if wrapped else manager
    return Call(Name("pandas.core.frame", "DataFrame"), (), state)


def rows(count):
    return Call(
        Name("pandas.core.index", "_new_Index"),
        (Name("pandas.core.index", "Int64Index"), {"data": array(range(count), "i8"), "name": None}),
    )


FLOATS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]])
COUNTS = np.array([[7, 8, 9]])


def published(where=slice(0, 3, 2)):
    axes = [index(["Time", "n", "R1"]), rows(3)]
    values = [array(FLOATS, fortran=True), array(COUNTS, "i8", ">")]
    places = [Call(Name("__builtin__", "slice"), (where.start, where.stop, where.step)), array([1], "i8")]
    blocks = [{"values": v, "mgr_locs": p} for v, p in zip(values, places, strict=True)]
    items = [index(["Time", "R1"]), index(["n"])]
    return frame((axes, values, items, {"0.14.1": {"axes": axes, "blocks": blocks}}))


WANTED = np.array([[1, 7, 4], [2, 8, 5], [3, 9, 6.5]])


@pytest.mark.parametrize("name", REAL)
def test_frames_of_real_pandas(name):
    columns, values = read_frame(io.BytesIO(base64.b64decode(REAL[name])))
    assert columns == ("Time", "n", "R1", "R2")
    np.testing.assert_array_equal(values, [[0, 7, 0.25, 0.5], [0.5, 8, 0.75, 1.5], [1, 9, 1.25, -2]])
    assert values.dtype == np.float64


def test_frame_of_python_2_and_pandas_0(tmp_path):
    columns, values = read_frame(python2(published()))
    assert columns == ("Time", "n", "R1")
    np.testing.assert_array_equal(values, WANTED)
    (tmp_path / "f.pickle").write_bytes(python2(published()).getvalue())
    np.testing.assert_array_equal(read_frame(tmp_path / "f.pickle")[1], WANTED)


@pytest.mark.parametrize("wrapped", [True, False])
def test_frame_from_before_pandas_0_14(wrapped):
    axes = [old_index(["Time", "n", "R1"]), rows(3)]
    state = (axes, [array(FLOATS), array(COUNTS, "i8")], [old_index(["Time", "R1"]), old_index(["n"])])
    columns, values = read_frame(python2(frame(state, wrapped)))
    assert columns == ("Time", "n", "R1")
    np.testing.assert_array_equal(values, WANTED)


def test_large_frames_keep_every_bit():
    values = np.random.default_rng(0).standard_normal((3, 1000))
    axes = [index(["a", "b", "c"]), rows(1000)]
    _, read = read_frame(python2(frame((axes, [array(values)], [index(["a", "b", "c"])]))))
    np.testing.assert_array_equal(read, values.T)


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
    yield "in a frame's state", python2(frame((Call(Name("posix", "system"), (command,)), [], []))).getvalue()
    yield "in an array's data", python2(array(FLOATS, of=("subprocess", "Popen"))).getvalue()
    yield "through the memo", b"\x80\x02" + system + b"q\x000h\x00" + opcodes((command,)) + b"R."
    yield "after a good frame", b"\x80\x02" + good + b"0" + system + opcodes((command,)) + b"R0" + good + b"."
    yield "INST", b"(" + text + b"ios\nsystem\n."
    yield "OBJ", b"(" + system + text + b"o."
    yield "NEWOBJ", b"\x80\x02" + opcodes(Name("subprocess", "Popen")) + opcodes((command,)) + b"\x81."
    dotted = b"\x80\x04\x8c\x06pandas\x8c\x12DataFrame.__init__\x93."
    yield "dotted name", dotted
    dotted = b"DataFrame.__init__.__globals__"
    yield "dotted further", b"\x80\x04\x8c\x06pandas\x8c" + bytes([len(dotted)]) + dotted + b"\x93."
    yield "getattr", python2(Call(Name("__builtin__", "getattr"), (Name("os", "path"), "os"))).getvalue()
    yield "__import__", python2(Call(Name("__builtin__", "__import__"), ("os",))).getvalue()
    yield "numpy's own exec", python2(Call(Name("numpy.testing._private.utils", "runstring"), (code, {}))).getvalue()
    yield "pandas's eval", python2(Call(Name("pandas", "eval"), (code,))).getvalue()
    yield "pandas's read_pickle", python2(Call(Name("pandas", "read_pickle"), (str(target),))).getvalue()
    yield "apply", python2(Call(Name("__builtin__", "apply"), (Name("os", "system"), [command]))).getvalue()
    yield "lookalike module", python2(Name("pandas_evil", "DataFrame")).getvalue()
    yield "persistent id", b"\x80\x02" + text + b"Q."
    yield "extension", b"\x80\x02\x82\x01."
    yield (
        "attributes of a class",
        b"\x80\x02" + opcodes(Name("pandas", "DataFrame")) + b"N}X\x04\x00\x00\x00nameK\x01s\x86b.",
    )
    maker = opcodes(Name("copy_reg", "_reconstructor"))
    yield "attributes of a function", b"\x80\x02" + maker + b"N}X\x0c\x00\x00\x00__defaults__)s\x86b."
    yield "remaking a class that is none", python2(Call(Name("copy_reg", "_reconstructor"), ("os", 1, None))).getvalue()
    yield "output buffer", b"\x80\x05\x97."
    yield "huge memo index", b"\x80\x02Nr\xf0\xff\xff\xff."
    yield "huge string", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f."
    yield "deep nesting", b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."
    yield "a plain list", pickle.dumps([1.0, 2.0])
    yield "cut off", good[:300]
    yield "not a pickle", b"PK\x03\x04"
    yield "nothing", b""


@pytest.mark.parametrize("case", [name for name, _ in hostile("x")])
def test_hostile_pickles_do_nothing(case, target, monkeypatch):
    imported = []
    monkeypatch.setattr("builtins.__import__", _spy(imported))
    content = dict(hostile(target))[case]
    imported.clear()
    with pytest.raises(DataError, match="Expected a pickled DataFrame"):
        read_frame(io.BytesIO(content))
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
        (published(slice(0, 2)), "lacks numbers for 'n', 'R1'"),
        (published(slice(0, 1)), "columns that do not exist"),
        (frame(([index(["a"]), rows(2)], [array([["x", "y"]], "S1", "|")], [index(["a"])])), "type 'S1'"),
        (frame(([index(["a"]), rows(2)], [labels(["x", "y"])], [index(["a"])])), "type 'O8'"),
        (frame(([index(["a"]), rows(2)], [array([1.0, 2.0])], [index(["a"])])), "make no table"),
        (frame(([index(["a"])], [array([[1.0, 2.0]])], [index(["a"])])), "1 axes"),
        (frame(([index([b"a", None]), rows(2)], [array([[1.0, 2.0]])], [index(["a"])])), "names a column by"),
        (Call(Name("pandas", "DataFrame"), ()), "version that is not known"),
        (index(["a"]), "holds a '_new_Index' instead"),
    ],
)
def test_frames_that_are_no_tables_of_numbers(thing, message):
    with pytest.raises(DataError, match=message):
        read_frame(python2(thing))


@pytest.mark.parametrize("shape", [(1, 3), (1, -2), (2**40, 2**40), "ab"])
def test_arrays_that_lie_about_their_shape(shape):
    lie = array([[1.0, 2.0]])
    lie.state = (1, shape if isinstance(shape, str) else tuple(min(n, 2**31 - 1) for n in shape), *lie.state[2:])
    with pytest.raises(DataError, match=r"bytes for an array|without type or shape"):
        read_frame(python2(frame(([index(["a"]), rows(2)], [lie], [index(["a"])]))))
