"""A file that is not what was saved. Imports no torch, so that the command line can read small files at once."""

from __future__ import annotations


class DamagedFileError(ValueError):
    """A file is not what was saved: bits have changed, a part is missing, or it is of another model."""
