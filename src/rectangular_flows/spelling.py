"""Words for people: what somebody may have meant, and text that is safe to show.

Imports nothing of the package, so that the command line has it at once.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

_LONGEST = 300  # of a word that is quoted in a message


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean …?' with the most similar known word, whatever its case, or nothing when none is similar.

    Example:
        >>> nearest("Heigth", ["height", "weight"]), nearest("x", ["height"])
        (" Did you mean 'height'?", '')
    """
    lowered = {option.lower(): option for option in reversed(list(known))}
    match = difflib.get_close_matches(word[:_LONGEST].lower(), list(lowered), n=1)
    return f" Did you mean '{lowered[match[0]]}'?" if match else ""


def printable(text: str) -> str:
    r"""The text with its control characters written out, all but line breaks: a file cannot command a terminal.

    Example:
        >>> printable("a\x1b[31mb\n")
        'a\\x1b[31mb\n'
    """
    return "".join(char if char == "\n" or _shown(char) else ascii(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    r"""The same on one line.

    Example:
        >>> one_line("a\n\tb\x07")
        'a b\\x07'
    """
    return printable(" ".join(text.split()))


def shortened(text: str, most: int = _LONGEST) -> str:
    """A text of at most so many characters, for a message that quotes it.

    Example:
        >>> shortened("1234567890", 5)
        '1234…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shown(char: str) -> bool:
    """Whether it is no control character, no change of direction and no half of a character."""
    return (char.isascii() and char.isprintable()) or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
