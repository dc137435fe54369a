"""The parts of a report and the page they make.

Whatever comes from outside (column names, file names, settings) is text and stays text: the template escapes everything,
and the page forbids itself any script but its own and any request to a network.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from ..plots.curves import Chart, describe_chart, draw_curves
from ..storage.files import write_atomically


class Metric(NamedTuple):
    """A headline number on a card; `good` adds a mark of approval or of warning."""

    label: str
    value: str
    note: str = ""
    good: bool | None = None


class Cards(NamedTuple):
    """A row of headline numbers."""

    metrics: Sequence[Metric]


class Picture(NamedTuple):
    """A figure or PNG file, embedded; `alt` says what it shows, for those who cannot see it, the caption what it means."""

    image: Figure | Path
    alt: str
    caption: str = ""


class Grid(NamedTuple):
    """A table. Numbers are aligned to the right and have four significant digits."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    caption: str = ""


class Text(NamedTuple):
    """Paragraphs, with a blank line between them. Inside: `code`, **bold**, *italic*, [text](https://address)."""

    body: str


class Code(NamedTuple):
    """A preformatted block with a button to copy it: a configuration, a command."""

    body: str
    language: str = ""


Part: TypeAlias = Cards | Text | Picture | Grid | Chart | Code


class Section(NamedTuple):
    """Parts under a heading; a collapsed section opens on a click."""

    title: str
    parts: Sequence[Part]
    collapsed: bool = False


class Page(NamedTuple):
    """A whole report."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footer: str = ""


def render(page: Page) -> str:
    """The page as one HTML document that needs no other file and no network.

    Example:
        >>> html = render(Page("Circle", "d = 1, D = 2", [Section("Fit", [Cards([Metric("KL", "0.006", good=True)])])]))
        >>> html.startswith("<!doctype html>"), "0.006" in html
        (True, True)
    """
    return _environment().get_template("page.html.j2").render(page=page).lstrip()


def write(page: Page, path: Path) -> Path:
    """Write the page atomically; missing folders are made."""
    html = render(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, html.encode("utf-8", errors="replace"))  # file names may hold what UTF-8 cannot
    return path


@functools.cache
def _environment() -> Environment:
    loader = PackageLoader(__package__, "")
    options: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=loader, autoescape=True, **options)
    markdown = MarkdownIt("zero", {"html": False}).enable(["backticks", "emphasis", "link"])
    markdown.validateLink = lambda url: url.startswith(("https://", "http://"))  # type: ignore[method-assign]
    environment.filters["digest"] = _digest
    environment.filters["image"] = _image
    environment.filters["kind"] = lambda part: type(part).__name__
    environment.filters["markdown"] = lambda text: Markup(markdown.render(text))
    return environment


def _digest(script: str) -> str:
    """The name under which a Content-Security-Policy lets this script run, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _image(part: Picture | Chart) -> dict[str, Any]:
    """The address of an image, what it shows, and its size, with which the page keeps the place free."""
    if isinstance(part, Chart):
        with rc_context({"svg.hashsalt": "rectangular-flows"}):  # the same bytes each time
            data = _saved(draw_curves(part), "svg", metadata={"Date": None, "Creator": None})
        return {"address": _address("svg+xml", data), "alt": describe_chart(part), "caption": "", "size": None}
    data = part.image.read_bytes() if isinstance(part.image, Path) else _saved(part.image, "png", dpi=160)
    size = struct.unpack(">II", data[16:24])
    return {"address": _address("png", data), "alt": part.alt, "caption": part.caption, "size": size}


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def _address(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
