import base64
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jinja2 import UndefinedError
from matplotlib.figure import Figure

from rectangular_flows.plots.curves import Chart, Curve
from rectangular_flows.report import page
from rectangular_flows.report.page import Cards, Code, Grid, Metric, Page, Picture, Section, Text, render, write
from rectangular_flows.storage import files
from tests.browser import opened_in_a_browser

HOSTILE = """<script>alert("x")</script>'"><img src=http://evil.example/x onerror=alert(1)>{{ 7 * 7 }}&amp;"""
VOID = {"meta", "link", "img", "br", "hr", "input"}


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0\0\0" * 2)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def figure():
    return Figure(figsize=(1, 0.5))


class Reader(HTMLParser):
    """Collects tags and text, and checks that tags are balanced."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.stack = [], [], []
        self.feed(html)
        self.close()
        assert not self.stack, f"left open: {self.stack}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def one(*parts, **options):
    return Reader(render(Page("Title", "Subtitle", [Section("Section", parts, **options)])))


def everything(text="plain", footer="The end"):
    return Page(
        f"Title {text}",
        f"Subtitle {text}",
        [
            Section(
                f"Numbers {text}", [Cards([Metric(text, f"0.5 {text}", text, good) for good in (True, False, None)])]
            ),
            Section(
                f"Words {text}",
                [
                    Text(
                        f"One {text}\n\nTwo **bold {text}** and `code {text}` and [link](https://example.org/a?b=1&c=2)"
                    ),
                    Code(f"x = '{text}'\n    y", text),
                    Grid([text, "n"], [[f"row {text}", 0.123456], ["", 1.0]], f"Caption {text}"),
                ],
            ),
            Section(
                f"Pictures {text}",
                [
                    Picture(figure(), f"alt {text}", f"caption {text}"),
                    Chart([Curve(text, range(5), [3, 1, float("nan"), 2, 4])], text, text, text),
                    Chart([], text, text, text, log_y=True),
                ],
                collapsed=True,
            ),
        ],
        f"{footer} {text}",
    )


def test_hostile_text_stays_text():
    plain, hostile = Reader(render(everything())), Reader(render(everything(HOSTILE)))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags], "no text became a tag"
    assert [sorted(a) for _, a in hostile.tags] == [sorted(a) for _, a in plain.tags], "or an attribute"
    assert hostile.text.count('<script>alert("x")</script>') >= 15
    assert "49" not in re.sub(r"[\d.]{3,}", "", hostile.text), "the template engine reads no text of ours"


def test_nothing_is_fetched_from_anywhere():
    html = render(everything(HOSTILE))
    reader = Reader(html)
    for tag, attributes in reader.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            address = attributes.get(name) or ""
            local = address.startswith(("data:", "#")) or not address
            assert local or (tag, name) == ("a", "href"), f"{tag} {name}={address}"
        assert not [name for name in attributes if name.startswith("on")], "no inline handlers"
    assert [a["href"] for a in reader.all("a") if a["href"].startswith("http")] == ["https://example.org/a?b=1&c=2"]
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for a in reader.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert "default-src 'none'" in policy
    assert page._digest(script) in policy
    assert not re.search(r"fetch\(|XMLHttp|localStorage|cookie", script)


def test_headings_names_and_anchors():
    reader = Reader(render(everything()))
    assert reader.all("html")[0]["lang"] == "en"
    assert [tag for tag, _ in reader.tags if tag in ("h1", "h2")] == ["h1", "h2", "h2", "h2"]
    ids = [a["id"] for _, a in reader.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in reader.all("a") if a["href"].startswith("#")} <= set(ids)
    assert all(a["alt"] for a in reader.all("img"))
    assert all("aria-label" in a or a.get("aria-hidden") for a in reader.all("svg"))
    assert len(reader.all("details")) == len(reader.all("summary")) == 1


def test_same_titles_have_different_anchors():
    reader = Reader(render(Page("t", "", [Section("Ω", []), Section("Ω", []), Section("Ω", [])])))
    assert len({a["id"] for a in reader.all("section")}) == 3


def test_cards():
    reader = one(Cards([Metric("KL", "0.006", "low", good=True), Metric("time", "3 h", good=False)]))
    for text in ("KL", "0.006", "low", "good", "3 h", "needs attention"):
        assert text in reader.texts
    assert not one(Cards([])).all("dt")


@pytest.mark.parametrize(
    ("body", "html"),
    [
        ("a **b *c* d** e", "<p>a <strong>b <em>c</em> d</strong> e</p>"),
        ("`**x** <b>`", "<p><code>**x** &lt;b&gt;</code></p>"),
        ("2 * 3 * 4 and **", "<p>2 * 3 * 4 and **</p>"),
        ("<i>a</i> &amp; \\* # x", "<p>&lt;i&gt;a&lt;/i&gt; &amp;amp; \\* # x</p>"),
        ("# a\n- b\n    c", "<p># a\n- b\n    c</p>"),
        ("[p](https://a.org/x_(y))", '<p><a href="https://a.org/x_(y)">p</a></p>'),
        ("[p](javascript:alert)", "<p>[p](javascript:alert)</p>"),
        ("[p](data:text/html,x) [q](file:///etc)", "<p>[p](data:text/html,x) [q](file:///etc)</p>"),
        ("[p](//a.org) [q](x.html)", "<p>[p](//a.org) [q](x.html)</p>"),
        ('[p](https://a.org/"onclick="x)', '<p><a href="https://a.org/%22onclick=%22x">p</a></p>'),
        ("![p](https://a.org/x.png)", '<p>!<a href="https://a.org/x.png">p</a></p>'),
        ("<https://a.org> https://a.org", "<p>&lt;https://a.org&gt; https://a.org</p>"),
        ("one\n \n\ntwo\nlines", "<p>one</p>\n<p>two\nlines</p>"),
        ("", ""),
    ],
)
def test_text_marks(body, html):
    document = render(Page("", "", [Section("", [Text(body)])]))
    found = re.search(r'<div class="text">\s*(.*?)\s*</div>', document, re.DOTALL)[1]
    assert re.sub(r"\n +", "\n", found) == re.sub(r"\n +", "\n", html)


def test_grid():
    reader = one(Grid(["name", "value", "text"], [["a", 0.1234567, "1.5"], ["b", 12, "x"]], "Caption"))
    for text in ("0.1235", "12", "1.5", "x", "Caption"):
        assert text in reader.texts
    assert [a["class"] for a in reader.all("th") if a["scope"] == "col"] == ["", "right", ""]
    assert [a["class"] for a in reader.all("td")] == ["right", ""] * 2
    assert one(Grid([], [])).all("table")


def test_pictures(tmp_path):
    path = tmp_path / "p.png"
    path.write_bytes(png())
    file, drawn = one(Picture(path, "alt"), Picture(figure(), "other")).all("img")
    assert base64.b64decode(file["src"].removeprefix("data:image/png;base64,")) == png()
    assert (file["alt"], file["width"], file["height"]) == ("alt", "3", "2")
    assert (drawn["alt"], drawn["width"], drawn["height"]) == ("other", "160", "80")


def test_charts_are_pictures_with_a_description():
    (image,) = one(Chart([Curve("a", [0, 1], [1, 2])], "step", "loss", "Loss")).all("img")
    assert image["alt"] == "Line chart of loss against step. a: from 1 to 2."
    svg = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")).decode()
    tree = ElementTree.fromstring(svg)
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [e for e in tree.iter() if e.tag.endswith(("script", "image", "foreignObject"))]
    references = [value for e in tree.iter() for name, value in e.attrib.items() if name.endswith("href")]
    assert all(value.startswith("#") for value in references)
    assert svg.count("#1f5fa8") == 1, "one line, in its colour"


def test_code_keeps_its_spaces():
    body = "\n  a\n\tb  \n\n"
    html = render(Page("", "", [Section("", [Code(body)])]))
    assert f'<pre tabindex="0"><code>{body}</code></pre>' in html


def test_rendering_is_reproducible():
    assert render(everything()) == render(everything())


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert write(Page("one", "", []), path) == path
    before = path.read_bytes()
    assert b"\r" not in before
    assert write(Page("name \udcff", "", []), path) == path, "a file name that is not UTF-8"
    path.write_bytes(before)

    def fail(*_):
        raise OSError("disk full")

    with pytest.raises(UndefinedError):
        write(Page("two", "", [Section("", ["bad"])]), path)
    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(Page("two", "", []), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_in_a_browser(tmp_path):
    text = opened_in_a_browser(write(everything(HOSTILE), tmp_path / "report.html"), tmp_path)
    assert "<title>Title &lt;script&gt;" in text
    assert 'aria-label="Switch to the ' in text


def test_the_template_is_part_of_the_package():
    assert (Path(page.__file__).parent / "page.html.j2").is_file()
