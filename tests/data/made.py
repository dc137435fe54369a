"""Small files in the formats of the published data sets, made for the tests."""

import gzip
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(values):
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_idx(folder, *, packed=False, shape=(28, 28)):
    """A small set in the format of MNIST; its images."""
    made = {}
    for part, stem, count in (("train", "train", 40), ("test", "t10k", 7)):
        made[part] = pixels(count, *shape, seed=count)
        content = idx(made[part])
        name = f"{stem}-images-idx3-ubyte" + ".gz" * packed
        put(folder / name, gzip.compress(content) if packed else content)
    return made


def put_picture(path, values, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **options)


def put_svhn(folder):
    folder.mkdir(exist_ok=True)
    made = {}
    for part, count in (("train", 30), ("test", 12)):
        made[part] = pixels(count, 3, 32, 32, seed=count)
        content = {"X": made[part].transpose(2, 3, 1, 0), "y": np.ones((count, 1), np.uint8)}
        savemat(folder / f"{part}_32x32.mat", content, do_compression=part == "train")
    return made


def put_cifar(folder, layout="binary", count=4):
    """CIFAR-10 with few images, each with a label where the layout has one; its images."""
    made = {name: pixels(count, 3, 32, 32, seed=i) for i, name in enumerate([*BATCHES, "test_batch"])}
    for name, images in made.items():
        if layout == "binary":
            flat = images.reshape(count, -1)
            put(folder / f"{name}.bin", np.column_stack([np.arange(count, dtype=np.uint8), flat]).tobytes())
        else:
            put_picture(folder / f"{name}.png", images.transpose(0, 2, 3, 1).reshape(count, 1024, 3))
    return made


def power_rows(count=200):
    return np.random.default_rng(0).uniform(0, [8, 1, 250, 40, 30, 30, 30, 1440], (count, 8)).round(3)


def gas_values():
    random = np.random.default_rng(1)
    sensors = random.standard_normal((400, 6))
    sensors[:, 1] = sensors[:, 0] + 0.01 * random.standard_normal(400)
    sensors[:, 4] = sensors[:, 0] + 0.01 * random.standard_normal(400)
    sensors[:, 5] = -sensors[:, 3]  # the rule of the benchmark is about positive correlation
    return sensors


def put_gas(folder):
    """GAS's pickle with few rows."""
    names = ["Time", "Meth", "Eth", "a", "b", "c", "d", "e", "f"]
    table = np.hstack([np.arange(1200.0).reshape(400, 3), gas_values()])
    axes = [index(names), rows(400)]
    put(folder / "ethylene_CO.pickle", python2(frame((axes, [array(table.T)], [index(names)]))))


def hepmass_text(count, extra, seed, comma=""):
    random = np.random.default_rng(seed)
    values = random.standard_normal((count, 4))
    values[:, 2] = random.integers(0, 3, count)  # a discrete feature
    label = random.integers(0, 2, count)
    names = ["# label", "f0", "f1", "f2", "f3", *(["mass"] if extra else [])]
    table = np.hstack([label[:, None], values, *([np.full((count, 1), 1000.0)] if extra else [])])
    lines = [",".join(f"{cell:.18e}" for cell in row) + comma for row in table]
    return ",".join(names) + "\n" + "\n".join(lines) + "\n", values[label == 1][:, [0, 1, 3]]


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
    how: bytes = b"R"  # REDUCE; NEWOBJ makes an object of a class


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
        case Call(function, args, state, how):
            made = opcodes(function) + opcodes(args) + how
            return made if state is None else made + opcodes(state) + b"b"
    raise TypeError(thing)


def python2(thing):
    return b"\x80\x02" + opcodes(thing) + b"."


def dtype(code, order="<"):
    return Call(Name("numpy", "dtype"), (code, 0, 1), (3, order, None, None, None, -1, -1, 0))


def array(values, code="f8", order="<", fortran=False, of=("numpy", "ndarray")):
    values = np.asarray(values)
    raw = values.astype(order.strip("|") + code).tobytes("F" if fortran else "C")
    state = (1, values.shape, dtype(code, order), fortran, raw)
    return Call(Name("numpy.core.multiarray", "_reconstruct"), (Name(*of), (0,), "b"), state)


def labels(names):
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
    manager = Call(Name("pandas.core.internals", "BlockManager"), (), manager_state, b"\x81")
    state = {"_typ": "dataframe", "_metadata": [], "_data": manager} if wrapped else manager
    return Call(Name("pandas.core.frame", "DataFrame"), (), state, b"\x81")


def rows(count):
    return Call(
        Name("pandas.core.index", "_new_Index"),
        (Name("pandas.core.index", "Int64Index"), {"data": array(range(count), "i8"), "name": None}),
    )
