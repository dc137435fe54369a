"""What ``rnf`` says when something goes wrong that nobody foresaw."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence

from .._version import __version__
from ..spelling import printable, shortened

_NO_MEMORY = ("can't allocate memory", "out of memory", "Unable to allocate")


def lack_of_memory(error: Exception) -> str:
    """What to say of an error if it is that of too little memory; '' for any other."""
    text = str(error)
    if not isinstance(error, MemoryError) and not any(part in text for part in _NO_MEMORY):
        return ""
    wanted = text.partition("tried to allocate")[2].split(".")[0].strip()
    how_much = f" ({wanted} at once)" if wanted else ""
    return f"not enough memory for that{how_much}: ask for fewer rows or samples, or a smaller model"


def report_bug(error: Exception, arguments: Sequence[str]) -> str:
    """One line about an error that is a bug; its details are written to a file of its own in the folder for such."""
    what = f"{type(error).__name__}: {shortened(' '.join(str(error).split()), 200)}"
    where = _write_details(error, arguments)
    return (
        f"this is a bug in rnf, not a mistake of yours ({what}). {where} Please report it: open an issue of the project, "
        "with the command and that text."
    )


def _write_details(error: Exception, arguments: Sequence[str]) -> str:
    """Where they are; a file that only the user can read, of a name that nobody else can have taken."""
    command = " ".join(shlex.quote(word) for word in ("rnf", *arguments))
    python = f"Python {platform.python_version()}, {platform.platform()}"
    torch = getattr(sys.modules.get("torch"), "__version__", "not imported")
    trace = "".join(traceback.format_exception(error))
    text = f"rectangular-flows {__version__}, {python}, torch {torch}\n{command}\n\n{trace}"
    try:
        descriptor, name = tempfile.mkstemp(prefix="rnf-bug-", suffix=".txt")
    except OSError as failure:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(last.filename)}, line {last.lineno}"
        return f"It happened in {place}; its details could not be written ({failure.strerror})."
    with contextlib.suppress(OSError), open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(printable(text))
    return f"Its details are in {name}."
