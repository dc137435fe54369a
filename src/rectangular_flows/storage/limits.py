"""How much memory a file from elsewhere may take: checked before it is allocated."""

from __future__ import annotations

import os

VARIABLE = "RNF_MAX_BYTES"
_UNKNOWN = 2**33  # the memory of a machine that does not say
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def machine_memory() -> int:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return _UNKNOWN


def most_bytes() -> int:
    """The most that one file may unfold to: half of the machine's memory, or what RNF_MAX_BYTES says.

    Raises:
        ValueError: RNF_MAX_BYTES is no number of bytes.

    Example:
        >>> import os
        >>> os.environ["RNF_MAX_BYTES"] = "2G"
        >>> most_bytes()
        2147483648
        >>> del os.environ["RNF_MAX_BYTES"]
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return machine_memory() // 2
    unit = text[-1:].upper() if text[-1:].upper() in _UNITS else ""
    digits = text[: len(text) - len(unit)]
    if not digits.isdecimal() or len(digits) > 18 or int(digits) < 1:
        raise ValueError(f"expected {VARIABLE} as a number of bytes, such as 2000000000 or 2G; got {text!r}")
    return int(digits) * _UNITS[unit]


def in_words(count: float) -> str:
    """A number of bytes in words.

    Example:
        >>> in_words(300), in_words(3 * 2**20), in_words(2.5 * 2**30)
        ('300 bytes', '3 MiB', '2.5 GiB')
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def check_bytes(count: float, what: str) -> None:
    """Refuse what would take more than :func:`most_bytes`."""
    most = most_bytes()
    if count > most:
        raise ValueError(
            f"{what} would take {in_words(count)}; the limit is {in_words(most)}, half of this machine's memory unless "
            f"{VARIABLE} says otherwise. If you trust it, set {VARIABLE}."
        )
