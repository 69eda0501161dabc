"""A figure inside a page has the page's colours and a name for who cannot see it."""

from __future__ import annotations

import re

from dashboards.chart import Figure
from dashboards.drawing import PALETTE
from dashboards.inline import colours, inline


def figure(svg: str, alt: str = "what it shows") -> Figure:
    return Figure("name", "title", "caption", alt, svg)


def test_every_light_colour_becomes_a_name_and_no_other_colour_does() -> None:
    lights = [light for light, _ in PALETTE.values()]
    svg = "<svg viewBox='0'>" + "".join(f"<g fill='{light}'/>" for light in [*lights, "#123456"]) + "</svg>"
    found = str(inline(figure(svg)))
    assert [*(f"var(--{name})" for name in PALETTE), "#123456"] == re.findall("fill='([^']*)'", found)
    assert len(set(lights)) == len(lights)


def test_a_figure_is_named_once_and_its_name_is_escaped() -> None:
    found = inline(figure("<svg a='1'><svg b='2'/></svg>", 'M < 1 & "x"'))
    expected = "<svg role=\"img\" aria-label=\"M &lt; 1 &amp; &#34;x&#34;\" a='1'><svg b='2'/></svg>"
    assert (expected, expected) == (str(found), found.__html__())


def test_the_palette_is_declared_for_light_and_for_dark_paper() -> None:
    for dark in (False, True):
        assert {f"--{name}": both[dark] for name, both in PALETTE.items()} == dict(
            each.split(":") for each in str(colours(dark)).split(";") if each
        )
