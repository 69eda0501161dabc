"""A page is written whole, and what comes from outside is escaped in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from dashboards import document
from dashboards.inline import colours
from orchestrator.store import provenance


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(document, "TEMPLATES", tmp_path)
    return tmp_path / "page.html"


def test_values_are_escaped_unless_they_are_markup(template: Path) -> None:
    template.write_text("<p>{{ text }}{{ svg }}\n{% if text %}\n  {% set x = 1 %}\nend\n{% endif %}")
    found = document.render("page.html", text='<b>&"', svg=Markup("<svg>"))
    assert "<p>&lt;b&gt;&amp;&#34;<svg>\nend\n" == found


def test_what_a_template_needs_must_be_given(template: Path) -> None:
    template.write_text("{{ missing }}")
    with pytest.raises(UndefinedError, match="'missing' is undefined"):
        document.render("page.html")


def test_filters_say_numbers_and_globals_are_the_palette(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "versions", lambda: {"engram-audit": "1.2.3"})
    template.write_text("{{ 0.123456 | number }} {{ 3 | counted('canary') }} {{ data | base64 }} {{ version }}")
    found = document.render("page.html", data=b"\xff")
    assert '<data value="0.123456" title="0.123456">0.1235</data> 3 canaries /w== 1.2.3' == found
    template.write_text("{{ light }} {{ dark }}{% for a, b in zip('xy', 'zw') %}{{ a }}{{ b }}{% endfor %}")
    assert f"{colours(False)} {colours(True)}xzyw" == document.render("page.html")


def test_an_installation_without_a_version_says_so(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "versions", dict)
    template.write_text("{{ version }}")
    assert "of no known version" == document.render("page.html")
    assert provenance.versions()["python"]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    document.write(path, "ε")
    assert "ε".encode() == path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        document.write(path, "new \ud800")  # it fails in the midst of writing
    assert ("ε", [path]) == (path.read_text(encoding="utf-8"), list(tmp_path.iterdir()))
    with pytest.raises(FileNotFoundError):
        document.write(tmp_path / "gone" / "page.html", "text")
