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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from ..plots.curves import Chart, describe_chart, draw_curves
from ..storage.files import write_atomically


@dataclass(frozen=True)
class Metric:
    """A headline number on a card; `good` adds a mark of approval or of warning."""

    label: str
    value: str
    note: str = ""
    good: bool | None = None


@dataclass(frozen=True)
class Cards:
    """A row of headline numbers."""

    metrics: Sequence[Metric]


@dataclass(frozen=True)
class Picture:
    """An image, embedded.

    Args:
        image: a figure, or the path of a PNG file.
        alt: what the picture shows, for those who cannot see it.
        caption: what it means, for everyone.
    """

    image: Figure | Path
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Grid:
    """A table. Numbers are aligned to the right and have four significant digits.

    Args:
        headings: one for each column.
        rows: cells, as many in each row as there are headings.
        caption: what the table shows.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    caption: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.headings):
                raise ValueError(f"Grid row {number}: expected {len(self.headings)} cells; got {len(row)}")


@dataclass(frozen=True)
class Text:
    """Paragraphs, with a blank line between them. Inside: `code`, **bold**, *italic*, [text](https://address)."""

    body: str


@dataclass(frozen=True)
class Code:
    """A preformatted block with a button to copy it: a configuration, a command."""

    body: str
    language: str = ""


Part: TypeAlias = Cards | Text | Picture | Grid | Chart | Code


@dataclass(frozen=True)
class Section:
    """Parts under a heading; a collapsed section opens on a click."""

    title: str
    parts: Sequence[Part]
    collapsed: bool = False


@dataclass(frozen=True)
class Page:
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
    sections = [
        {
            "id": f"section-{number}",
            "title": section.title,
            "collapsed": section.collapsed,
            "parts": [_view(part) for part in section.parts],
        }
        for number, section in enumerate(page.sections, start=1)
    ]
    return _environment().get_template("page.html.j2").render(page=page, sections=sections).lstrip()


def write(page: Page, path: Path) -> Path:
    """Write the page atomically; missing folders are made."""
    html = render(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, html.encode("utf-8", errors="replace"))  # file names may hold what UTF-8 cannot
    return path


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["digest"] = _digest
    return environment


@functools.cache
def _markdown() -> MarkdownIt:
    """Paragraphs, code, emphasis and links; no HTML, and no link but to the web."""
    markdown = MarkdownIt("zero", {"html": False}).enable(["backticks", "emphasis", "link"])
    markdown.validateLink = lambda url: url.startswith(("https://", "http://"))  # type: ignore[method-assign]
    return markdown


def _digest(script: str) -> str:
    """The name under which a Content-Security-Policy lets this script run, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _view(part: Part) -> dict[str, Any]:
    """What the template needs of a part."""
    match part:
        case Cards():
            return {"kind": "cards", "metrics": part.metrics}
        case Text():
            return {"kind": "text", "html": Markup(_markdown().render(part.body))}
        case Picture():
            data = _png(part.image)
            size = struct.unpack(">II", data[16:24])  # with which the page keeps the place free
            return {"kind": "picture", "picture": part, "address": _address("png", data), "size": size}
        case Chart():
            with rc_context({"svg.hashsalt": "rectangular-flows"}):  # the same bytes each time
                data = _saved(draw_curves(part), "svg", metadata={"Date": None, "Creator": None})
            picture = {"alt": describe_chart(part), "caption": ""}
            return {"kind": "picture", "picture": picture, "address": _address("svg+xml", data), "size": None}
        case Grid():
            rows = [
                [(cell, "") if isinstance(cell, str) else (f"{cell:.4g}", "right") for cell in r] for r in part.rows
            ]
            return {"kind": "grid", "grid": part, "rows": rows}
        case Code():
            return {"kind": "code", "code": part}
    raise TypeError(f"Section: expected Cards, Text, Picture, Grid, Chart or Code; got {type(part).__name__}")


def _png(image: Figure | Path) -> bytes:
    if isinstance(image, Figure):
        return _saved(image, "png", dpi=160)
    data = Path(image).read_bytes()
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError(f"Picture: expected a PNG file; got {image}, which begins with {data[:8]!r}")
    return data


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def _address(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
