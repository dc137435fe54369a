"""Cases that nobody would write by hand: tables as text, arrays, settings, command lines."""

import gzip
import io
import zipfile

import numpy as np
from hypothesis import strategies as st

from rectangular_flows.settings import settings_table

_ODD = ["", "nan", "NaN", "inf", "-inf", "NA", "1e400", "-1e39", "1e30", "0x10", "1_000", "1,5", "#7", '"', '"1"', "'"]
_ODD += [
    "x",
    "é",
    "\u202e",
    "\x1b[31m",
    "\x07",
    "[/red]",
    "$\\frac$",
    "1" * 400,
    " 1 ",
    "+1",
    "--1",
    "1e",
    "٣",
    "\ufeff",
]
_NAMES = ["height", "weight", "age", "x1", "", " height", "HEIGHT", "row", "log_density", "$x$", "\x1b[2J", "é"]
numbers = st.floats(-5, 5).map(repr) | st.integers(-9, 9).map(str)
cells = st.one_of(numbers, numbers, numbers, st.sampled_from(_ODD), st.text(max_size=5))


@st.composite
def texts(draw):
    """The name and the bytes of a file that may be a table."""
    mark = draw(st.sampled_from([",", ",", ";", "\t", " "]))
    names = draw(
        st.sampled_from([["height", "weight", "age"]] * 3 + [[]]) | st.lists(st.sampled_from(_NAMES), max_size=5)
    )
    width = len(names) or draw(st.integers(0, 5))
    plain = draw(st.booleans())
    row = st.lists(numbers if plain else cells, min_size=width, max_size=width + (not plain))
    lines = [mark.join(cells) for cells in ([names] if names else []) + draw(st.lists(row, max_size=6))]
    data = draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(lines).encode("utf-8", "surrogatepass")
    wide = data.decode("utf-8", "replace").encode("utf-16")
    data = draw(st.sampled_from([data] * 6 + [data + b"\n", data[:-1], data + b"\xff", wide]))
    suffix = draw(st.sampled_from([".csv", ".csv", ".tsv", ".txt", ".dat", ".csv.gz"]))
    if suffix.endswith(".gz"):
        data = gzip.compress(data)
        data = draw(st.sampled_from([data, data, data[:-5], b"x" + data]))
    return f"case{suffix}", data


@st.composite
def arrays(draw):
    """The name and the bytes of a file that may hold an array."""
    shape = tuple(draw(st.sampled_from([(4, 3), (4, 3), (1, 3), (0, 3), (3,), (2, 3, 1), (4, 2), (4, 5), ()])))
    kind = draw(st.sampled_from(["f8", "f8", "f4", ">f8", "f2", "i4", "u1", "?", "c16", "U3", "M8[s]"]))
    values = np.array(draw(st.lists(st.integers(0, 3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
    array = values.reshape(shape).astype(kind)
    if kind.endswith(("f8", "f4")) and array.size:
        array.flat[0] = draw(st.sampled_from([1.0, 1.0, np.nan, np.inf, 1e38, 1e-30]))
    file = io.BytesIO()
    suffix = draw(st.sampled_from([".npy", ".npz"]))
    if suffix == ".npy":
        np.save(file, array)
    else:
        names = draw(st.lists(st.sampled_from(_NAMES[:5]), max_size=5))
        extra = {"columns": np.array(names)} if draw(st.booleans()) else {}
        np.savez(file, **{draw(st.sampled_from(["data", "X", "other"])): array}, **extra)
        if draw(st.integers(0, 5)) == 0:
            with zipfile.ZipFile(file, "a") as archive:
                archive.writestr(draw(st.sampled_from(["note.txt", "more.npy", "../up.npy"])), b"no array")
    data = bytearray(file.getvalue())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return f"case{suffix}", bytes(data[: draw(st.sampled_from([None, None, None, 70, -20]))])


_VALUES = ["0", "1", "-1", "2", "1e9", "1e-9", "1e308", "nan", "inf", "auto", "none", "true", ""]
_VALUES += ["x", "64,64", "[", "é", "9" * 30]
_LEFT_OUT = ("data", "device", "time")  # whose values say nothing about how they are read


@st.composite
def settings(draw):
    """Flags of ``rnf fit``; and whether they are to stand in a file instead."""
    known = {name: one for name, one in settings_table().settings().items() if name not in _LEFT_OUT}
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
    found = {}
    for name in chosen:
        usual = known[name].default
        found[name] = draw(st.sampled_from([*_VALUES, str(usual), str(usual)]) | st.integers(-3, 2**70).map(str))
    return found, draw(st.booleans())


_WORDS = [
    "table-run",
    "stopped-run",
    "nowhere",
    "",
    ".",
    "table.csv",
    "images.npy",
    "circle",
    "mnist",
    "--help",
    "--",
    "-",
]
_WORDS += [
    "-n",
    "-o",
    "out.csv",
    "out.npy",
    "out",
    "--seed",
    "--id",
    "--explain",
    "--coordinates",
    "--drop-invalid",
    "-q",
]
_WORDS += [
    "--scatter",
    "--against",
    "--rows",
    "--again",
    "0",
    "1",
    "7",
    "-1",
    "1e3",
    "9" * 30,
    "age",
    "age,",
    "[",
    "list",
]
_WORDS += ["x\x1b[31m", "get", "bash"]
_COMMANDS = [
    "sample",
    "score",
    "sample",
    "score",
    "show",
    "completion",
    "data",
    "dimension",
    "evaluate",
    "ood",
    "none",
    "",
]


@st.composite
def command_lines(draw):
    """Words for ``rnf``."""
    start = draw(st.sampled_from([["table-run"], ["table-run", "table.csv"], []]))
    words = st.sampled_from(_WORDS) | st.text(max_size=4).filter(lambda word: "\0" not in word)
    return [draw(st.sampled_from(_COMMANDS)), *start, *draw(st.lists(words, max_size=5))]
