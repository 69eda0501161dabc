"""Pages are written atomically, and outside text is escaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from dashboards import document
from dashboards.chart import Figure
from dashboards.document import colours, inline
from dashboards.drawing import PALETTE
from orchestrator.store import provenance


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(document, "TEMPLATES", tmp_path)
    return tmp_path / "page.html"


def test_values_are_escaped_unless_they_are_markup(template: Path) -> None:
    template.write_text("<p>{{ text }}{{ svg }}\n{% if text %}\n  {% set x = 1 %}\nend\n{% endif %}")
    rendered = document.render("page.html", text='<b>&"', svg=Markup("<svg>"))
    assert rendered == "<p>&lt;b&gt;&amp;&#34;<svg>\nend\n"


def test_missing_template_value_is_refused(template: Path) -> None:
    template.write_text("{{ missing }}")
    with pytest.raises(UndefinedError, match="'missing' is undefined"):
        document.render("page.html")


def test_filters_format_numbers_and_globals_are_palette(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "versions", lambda: {"engram-audit": "1.2.3"})
    template.write_text("{{ 0.123456 | number }} {{ 3 | counted('canary') }} {{ data | base64 }} {{ version }}")
    rendered = document.render("page.html", data=b"\xff")
    assert rendered == '<data value="0.123456" title="0.123456">0.1235</data> 3 canaries /w== 1.2.3'
    template.write_text("{{ light }} {{ dark }}{% for a, b in zip('xy', 'zw') %}{{ a }}{{ b }}{% endfor %}")
    assert document.render("page.html") == f"{colours(False)} {colours(True)}xzyw"


def test_unknown_version_is_stated(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "versions", dict)
    template.write_text("{{ version }}")
    assert document.render("page.html") == "of no known version"
    assert provenance.versions()["python"]


def write_half(path: Path, text: str, encoding: str) -> None:
    path.write_bytes(text.encode(encoding)[:1])
    raise OSError("full")


def test_file_is_written_entirely_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    document.write(path, "ε")
    assert "ε".encode() == path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", write_half)
        with pytest.raises(OSError, match="full"):
            document.write(path, "new")
    assert path.read_text(encoding="utf-8") == "ε"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        document.write(tmp_path / "gone" / "page.html", "text")


def figure(svg: str, alt: str = "what it shows") -> Figure:
    return Figure("name", "title", "caption", alt, svg)


def test_light_colours_become_names() -> None:
    lights = [light for light, _ in PALETTE.values()]
    svg = "<svg viewBox='0'>" + "".join(f"<g fill='{light}'/>" for light in [*lights, "#123456"]) + "</svg>"
    inlined = str(inline(figure(svg)))
    assert re.findall("fill='([^']*)'", inlined) == [*(f"var(--{name})" for name in PALETTE), "#123456"]
    assert len(set(lights)) == len(lights)


def test_figure_label_is_escaped() -> None:
    inlined = inline(figure("<svg a='1'><svg b='2'/></svg>", 'M < 1 & "x"'))
    expected = "<svg role=\"img\" aria-label=\"M &lt; 1 &amp; &#34;x&#34;\" a='1'><svg b='2'/></svg>"
    assert expected == str(inlined)
    assert expected == inlined.__html__()


def test_palette_has_light_and_dark_declarations() -> None:
    for dark in (False, True):
        assert {f"--{name}": shades[dark] for name, shades in PALETTE.items()} == dict(
            declaration.split(":") for declaration in str(colours(dark)).split(";") if declaration
        )
