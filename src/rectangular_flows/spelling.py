"""What somebody may have meant. Imports nothing of the package, so that the command line has it at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean …?' with the most similar known word, whatever its case, or nothing when none is similar.

    Example:
        >>> nearest("Heigth", ["height", "weight"]), nearest("x", ["height"])
        (" Did you mean 'height'?", '')
    """
    lowered = {option.lower(): option for option in reversed(list(known))}
    match = difflib.get_close_matches(word.lower(), list(lowered), n=1)
    return f" Did you mean '{lowered[match[0]]}'?" if match else ""
