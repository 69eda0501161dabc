"""A drawing's SVG: text, colours with names, nothing from outside, the same bytes every time."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from dashboards import drawing

COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|rgba?\([^)]*\)")


def drawn(name: str = "one", label: str = "label") -> str:
    with drawing.style():
        figure = drawing.canvas(2.0)
        axes = drawing.add_axes(figure, 0.5, 0.5, 4, 1.2)
        axes.plot([0, 1, 2, 3], [1.123456789, 2, 3, 4], "o", color=drawing.light("canary"))
        axes.set_title(label)
        return drawing.svg(figure, name)


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_only_named_colours_are_drawn_and_each_name_has_its_own() -> None:
    lights = [light for light, _ in drawing.PALETTE.values()]
    assert len(lights) == len(set(lights))
    assert set(COLOUR.findall(drawn())) <= set(lights)


def test_text_stays_text_in_the_fonts_of_the_reader() -> None:
    text = drawn(label="5 < 6 & $x$ 'é'")
    found = [each for each in ElementTree.fromstring(text).iter() if each.tag.endswith("text")]
    assert "5 < 6 & $x$ 'é'" in [each.text for each in found]
    assert "DejaVu" not in text
    assert "system-ui" in text


def test_it_is_one_element_that_needs_nothing_from_outside() -> None:
    text = drawn()
    root = ElementTree.fromstring(text)
    assert "{http://www.w3.org/2000/svg}svg" == root.tag
    assert {"viewBox", "stroke-linejoin", "stroke-linecap"} == set(root.attrib)
    assert ["http://www.w3.org/2000/svg"] == re.findall(r"https?://[^\"]*", text)
    assert "<style" not in text
    assert "<metadata" not in text


def test_it_is_drawn_the_same_every_time_whatever_the_users_settings() -> None:
    import matplotlib

    once = drawn()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert once == drawn()
        assert 30 == matplotlib.rcParams["font.size"]  # and they are the user's again


def test_ids_of_two_figures_in_a_page_differ_and_lead_somewhere() -> None:
    one, other = (set(re.findall(r' id="([^"]+)"', drawn(name))) for name in ("one", "other"))
    assert one
    assert set() == one & other
    assert set(re.findall(r"(?:url\(|href=\")#([^\")]+)", drawn("one"))) == one


def test_ticks_of_a_logarithmic_scale_are_powers_where_their_digits_would_be_many() -> None:
    assert ["10⁻¹³", "0.001", "1", "1000", "10⁵", "20000"] == [
        drawing.format_power(value) for value in (1e-13, 1e-3, 1.0, 1e3, 1e5, 2e4)
    ]
    with drawing.style():
        axes = drawing.add_axes(drawing.canvas(2.0), 0.5, 0.5, 4, 1.2)
        for values, most in (([1e-13, 7e4], 7), ([1.0, 30.0], 9), ([5.0, 6.0], 6), ([3.0], 6)):
            drawing.set_log_x_axis(axes, values)
            low, high = axes.get_xlim()
            assert low < min(values)
            assert max(values) < high
            assert 2 <= len([tick for tick in axes.get_xticks() if low <= tick <= high]) <= most


def test_a_drawing_can_be_a_png_too() -> None:
    with drawing.style():
        figure = drawing.canvas(2.0)
        drawing.add_axes(figure, 0.5, 0.5, 4, 1.2)
        assert drawing.png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("theme", [0, 1])
def test_what_is_drawn_stands_out_on_light_and_on_dark_paper(theme: int) -> None:
    colours = {name: both[theme] for name, both in drawing.PALETTE.items()}
    for name in ("ink", "muted"):
        assert contrast(colours[name], colours["paper"]) >= 4.5
    for name in ("canary", "twin", "accent", "violet", "ochre", "rose"):
        assert contrast(colours[name], colours["paper"]) >= 3
    for name, band in itertools.product(("canary", "twin"), ("canary-band", "twin-band")):
        assert contrast(colours[name], colours[band]) >= 3
