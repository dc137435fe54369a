"""The parts of a report and the page they make.

Whatever comes from outside (column names, file names, settings) is text and stays text: the template escapes everything,
and the page forbids itself any script but its own and any request to a network.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import numbers
import os
import re
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from .charts import Chart, draw, format_number


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
    """An image, embedded: the bytes of a PNG, JPEG or SVG, the path of such a file, or a matplotlib figure.

    Args:
        image: the bytes, the path, or anything with matplotlib's `savefig`.
        alt: what the picture shows, for those who cannot see it.
        caption: what it means, for everyone.
    """

    image: bytes | Path | Any
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Grid:
    """A table. Numbers stand to the right, floats with four significant digits, integers in full; None is a dash.

    Args:
        headings: one for each column.
        rows: cells, as many in each row as there are headings.
        caption: what the table shows.
        highlight: the number of a row to emphasise, from 0.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]
    caption: str = ""
    highlight: int | None = None

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.headings):
                raise ValueError(f"Grid row {number}: expected {len(self.headings)} cells; got {len(row)}")
        if self.highlight is not None and not 0 <= self.highlight < len(self.rows):
            raise ValueError(f"Grid highlight: expected a row from 0 to {len(self.rows) - 1}; got {self.highlight}")


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
            "id": _anchor(number, section.title),
            "title": section.title,
            "collapsed": section.collapsed,
            "parts": [_view(part) for part in section.parts],
        }
        for number, section in enumerate(page.sections, start=1)
    ]
    return _environment().get_template("page.html.j2").render(page=page, sections=sections).lstrip()


def write(page: Page, path: Path) -> Path:
    """Write the page, all of it or nothing: a reader never meets half a file. Missing folders are made.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> write(Page("Circle", "", []), Path(folder.name) / "report.html").name
        'report.html'
        >>> folder.cleanup()
    """
    path = Path(path)
    html = render(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        # file names may hold what UTF-8 cannot; the newlines are those the script's digest was taken with
        draft.write_text(html, encoding="utf-8", errors="replace", newline="\n")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
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


def _digest(script: str) -> str:
    """The name under which a Content-Security-Policy lets this script run, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _anchor(number: int, title: str) -> str:
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(["section", str(number), *words[:6]])


def _view(part: Part) -> dict[str, Any]:
    """What the template needs of a part."""
    match part:
        case Cards():
            return {"kind": "cards", "metrics": part.metrics, "columns": _columns(len(part.metrics))}
        case Text():
            paragraphs = re.split(r"\n\s*\n", part.body.strip())
            return {"kind": "text", "paragraphs": [_inline(p) for p in paragraphs if p]}
        case Picture():
            address, size = _embedded(_image_bytes(part.image))
            return {"kind": "picture", "picture": part, "address": address, "size": size}
        case Grid():
            return {"kind": "grid", "grid": part, **_cells(part)}
        case Chart():
            return {"kind": "chart", "drawing": draw(part)}
        case Code():
            return {"kind": "code", "code": part}
    raise TypeError(f"Section: expected Cards, Text, Picture, Grid, Chart or Code; got {type(part).__name__}")


def _columns(count: int) -> int:
    """Cards in a row, so that several rows are about equally full."""
    rows = -(-count // 5)
    return -(-count // rows) if rows else 1


_MARKS = re.compile(
    r"`(?P<code>[^`]+)`"
    r"|\*\*(?=\S)(?P<bold>.+?)(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=[^\s*])(?P<italic>.+?)(?<=[^\s*])\*(?![\w*])"  # not the products of a*b*c
    r"|\[(?P<link>[^\]]+)\]\((?P<address>https?://(?:[^\s()]|\([^\s()]*\))+)\)",
    re.DOTALL,
)


def _inline(text: str) -> Markup:
    """The marks of Text as HTML; everything that is not one of them is escaped."""
    html, position = Markup(), 0
    for mark in _MARKS.finditer(text):
        html += escape(text[position : mark.start()])
        position = mark.end()
        match mark.lastgroup:
            case "code":
                html += Markup("<code>{}</code>").format(mark["code"])
            case "bold":
                html += Markup("<strong>{}</strong>").format(_inline(mark["bold"]))
            case "italic":
                html += Markup("<em>{}</em>").format(_inline(mark["italic"]))
            case _:
                html += Markup('<a href="{}" rel="noopener">{}</a>').format(mark["address"], mark["link"])
    return html + escape(text[position:])


def _image_bytes(image: Any) -> bytes:
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str | os.PathLike):
        return Path(image).read_bytes()
    if hasattr(image, "savefig"):
        buffer = io.BytesIO()
        image.savefig(buffer, format="png", dpi=160)
        return buffer.getvalue()
    raise TypeError(f"Picture: expected bytes, a path or a matplotlib figure; got {type(image).__name__}")


def _embedded(data: bytes) -> tuple[str, tuple[int, int] | None]:
    """A data URI and, where it is easy to tell, the size in pixels, with which the page keeps the place free."""
    size = None
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        kind, size = "png", struct.unpack(">II", data[16:24])
    elif data.startswith(b"\xff\xd8\xff"):
        kind = "jpeg"
    elif re.match(rb"(\xef\xbb\xbf)?\s*(<\?xml|<!--|<!DOCTYPE svg|<svg)", data) and b"<svg" in data:
        kind = "svg+xml"  # as an image, its scripts do not run
    else:
        raise ValueError(f"Picture: expected PNG, JPEG or SVG; got {len(data)} bytes beginning with {data[:8]!r}")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}", size


def _cells(grid: Grid) -> dict[str, Any]:
    def numeric(cell: object) -> bool:
        return isinstance(cell, numbers.Real) and not isinstance(cell, bool)

    columns = [[row[i] for row in grid.rows] for i in range(len(grid.headings))]
    right = [any(map(numeric, column)) and all(numeric(cell) or cell is None for cell in column) for column in columns]
    rows = [
        [
            {
                "text": "–" if cell is None else format_number(cell) if numeric(cell) else str(cell),
                "right": numeric(cell) or (cell is None and right[i]),
            }
            for i, cell in enumerate(row)
        ]
        for row in grid.rows
    ]
    return {"right": right, "rows": rows}
