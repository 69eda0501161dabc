"""Parts of a drawing: SVG and colours, axes, legends, number lines and signs of answers."""

from __future__ import annotations

import itertools
import math
import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from dashboards import drawing, layout, legend
from dashboards.chart import Axis, row_panel
from dashboards.document import TEMPLATES
from dashboards.number_line import LEFT, RIGHT, Scale, legend_entries, number_line
from dashboards.signs import SHAPES, badge, kind, sign
from tasks.contract.certificate import Boundary, NumberLine
from tasks.contract.verdict import ANSWERS, BELOW_RELEVANT_SIZE, Meaning

COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|rgba?\([^)]*\)")


def make_svg(name: str = "one", label: str = "label") -> str:
    with drawing.style():
        figure = drawing.canvas(2.0)
        axes = drawing.add_axes(figure, 0.5, 0.5, 4, 1.2)
        axes.plot([0, 1, 2, 3], [1.123456789, 2, 3, 4], "o", color=drawing.light("canary"))
        axes.set_title(label)
        return drawing.svg(figure, name)


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = []
    for part in parts:
        linear.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_drawings_use_distinct_named_colours() -> None:
    lights = [light for light, _ in drawing.PALETTE.values()]
    assert len(lights) == len(set(lights))
    assert set(COLOUR.findall(make_svg())) <= set(lights)


def test_text_uses_the_readers_fonts() -> None:
    text = make_svg(label="5 < 6 & $x$ 'é'")
    text_elements = []
    for element in ElementTree.fromstring(text).iter():
        if element.tag.endswith("text"):
            text_elements.append(element)
    assert "5 < 6 & $x$ 'é'" in [element.text for element in text_elements]
    assert "DejaVu" not in text
    assert "system-ui" in text


def test_svg_is_one_self_contained_element() -> None:
    text = make_svg()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert set(root.attrib) == {"viewBox", "stroke-linejoin", "stroke-linecap"}
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "<style" not in text
    assert "<metadata" not in text


def test_drawing_ignores_user_settings() -> None:
    import matplotlib

    once = make_svg()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert once == make_svg()
        assert matplotlib.rcParams["font.size"] == 30  # the user's settings are restored


def test_ids_of_two_figures_are_distinct() -> None:
    ids = set(re.findall(r' id="([^"]+)"', make_svg("one")))
    other_ids = set(re.findall(r' id="([^"]+)"', make_svg("other")))
    assert ids
    assert set() == ids & other_ids
    assert set(re.findall(r"(?:url\(|href=\")#([^\")]+)", make_svg("one"))) == ids


def test_long_logarithmic_ticks_are_powers() -> None:
    assert [drawing.format_power(value) for value in (1e-13, 1e-3, 1.0, 1e3, 1e5, 2e4)] == [
        "10⁻¹³",
        "0.001",
        "1",
        "1000",
        "10⁵",
        "20000",
    ]
    with drawing.style():
        axes = drawing.add_axes(drawing.canvas(2.0), 0.5, 0.5, 4, 1.2)
        for values, limit in (([1e-13, 7e4], 7), ([1.0, 30.0], 9), ([5.0, 6.0], 6), ([3.0], 6)):
            drawing.set_log_x_axis(axes, values)
            low, high = axes.get_xlim()
            assert low < min(values)
            assert max(values) < high
            assert 2 <= len([tick for tick in axes.get_xticks() if low <= tick <= high]) <= limit


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_have_contrast_on_both_themes(theme: int) -> None:
    colours = {name: shades[theme] for name, shades in drawing.PALETTE.items()}
    for name in ("ink", "muted"):
        assert contrast(colours[name], colours["paper"]) >= 4.5
    for name in ("canary", "twin", "accent", "violet", "ochre", "rose"):
        assert contrast(colours[name], colours["paper"]) >= 3
    for name, band in itertools.product(("canary", "twin"), ("canary-band", "twin-band")):
        assert contrast(colours[name], colours[band]) >= 3


def test_stacked_boxes_span_the_page() -> None:
    upper, lower = layout.stack(2, 1.5)
    width = drawing.WIDTH - layout.LEFT - layout.RIGHT
    assert upper == pytest.approx((0.75, 2.0, width, 1.1))
    assert lower == pytest.approx((0.75, 0.5, width, 1.1))


def test_first_row_is_at_the_top() -> None:
    rows = layout.rows(["first", "a name that is much too long for its row"], 0.4)
    figure = drawing.canvas(rows.height)
    row_panel(rows, [], Axis()).draw(figure)
    (axes,) = figure.axes
    figure.canvas.draw()
    labels = {}
    for tick in axes.get_yticklabels():
        labels[tick.get_position()[1]] = tick.get_text()
    assert rows.y.tolist() == [1, 0]
    assert labels == {1: "first", 0: "a name that is much too…"}
    assert figure.get_size_inches()[1] == pytest.approx(0.3 * 2 + 0.5 + 0.4)


@pytest.mark.parametrize(
    ("shown_rows", "total", "words"), [(3, 3, ""), (3, 5, " The figure shows the first 3 of 5 rows.")]
)
def test_rows_left_out_are_counted(shown_rows: int, total: int, words: str) -> None:
    assert words == layout.left_out_note(shown_rows, total, "rows")


def test_legend_keeps_order_in_upper_left_corner() -> None:
    with drawing.style():
        figure = drawing.canvas(2.0)
        legend.add_above(figure, [legend.line("first", color="red"), legend.area("second", color="blue")])
        svg = drawing.svg(figure, "legend")
    (legend_box,) = figure.legends
    box = legend_box.get_window_extent()
    assert [text.get_text() for text in legend_box.get_texts()] == ["first", "second"]
    assert svg.index(">first<") < svg.index(">second<")
    assert (round(box.x0 / figure.dpi), abs(box.y1 / figure.dpi - 2.0) < 0.1) == (0, True)


def test_legend_entries_look_like_their_lines() -> None:
    joined = legend.series(["one", "two"], True, linewidth=2)
    alone = legend.series(["one", "two"], False, linewidth=2)
    looks = []
    for line in joined:
        looks.append((line.get_label(), line.get_marker(), line.get_linestyle(), line.get_linewidth()))
    assert looks == [("one", "o", "-", 2), ("two", "^", "--", 2)]
    assert [drawing.light("accent"), drawing.light("violet")] == [line.get_color() for line in joined]
    assert [line.get_linestyle() for line in alone] == ["None", "None"]


@pytest.mark.parametrize(
    ("letters", "entries", "columns", "height"), [(24, 3, 2, 2 * legend.ROW), (25, 3, 1, 3 * legend.ROW)]
)
def test_long_labels_are_in_one_column(letters: int, entries: int, columns: int, height: float) -> None:
    column_count = legend.columns(["a", letters * "b", "c"])
    assert columns == column_count
    assert height == legend.height(entries, column_count)


def test_listing_shows_value_of_each_line() -> None:
    with drawing.style():
        figure = drawing.canvas(2.0)
        legend.add_below(
            figure, 0.62, [("t-test", drawing.SERIES[0], "0.5"), ("rank", drawing.SERIES[1], "")], "detected"
        )
    (axes,) = figure.axes
    texts = {text.get_text(): text.get_position() for text in axes.texts}
    right = drawing.WIDTH - 0.1
    mark_positions = {"detected": (right, 0.42), "t-test": (0.72, 0.17), "0.5": (right, 0.17), "rank": (0.72, -0.08)}
    assert {name: pytest.approx(position) for name, position in mark_positions.items()} == texts
    assert pytest.approx(tuple(axes.get_window_extent().size / figure.dpi)) == (5.2, 0.62)


EFFECT = NumberLine("effect, in nats", 0.3656, 0.1775, 0.5537, 0.0, boundaries=(Boundary(0.1, "not detected below"),))
PLACE = NumberLine("place", 3, null=101.0, usual=(11, 201), boundaries=(Boundary(10, "memorised"),), logarithmic=True)


def mark_positions(line: NumberLine, mark: str) -> list[float]:
    marks = re.findall(rf'<(?:line|circle) class="{mark}" (?:x1|cx)="([\d.]+)%"', number_line(line))
    return [float(position) for position in marks]


P_VALUE = NumberLine("p", 1e-9, null=1.0, boundaries=(Boundary(0.025, "significant below"),), logarithmic=True)


@pytest.mark.parametrize("line", [EFFECT, PLACE, P_VALUE, NumberLine("one number", 2.0)])
def test_all_elements_are_inside_the_line(line: NumberLine) -> None:
    positions = []
    for position in re.findall(r'(?:x1|x2|cx|x)="([\d.]+)%"', number_line(line)):
        positions.append(float(position))
    assert all(LEFT <= position <= RIGHT for position in positions)
    assert 2 <= number_line(line).count("<text") <= 9


def test_marks_are_ordered_by_value() -> None:
    ((null,), (boundary,), (low,), (estimate,)) = (
        mark_positions(EFFECT, mark) for mark in ("null", "boundary", "range", "estimate")
    )
    assert null < boundary < low < estimate
    assert mark_positions(PLACE, "estimate") < mark_positions(PLACE, "boundary") < mark_positions(PLACE, "null")


def test_equal_null_and_boundary_remain_distinguishable() -> None:
    line = NumberLine("x", 1.0, 0.5, 1.5, 0.0, boundaries=(Boundary(0.0, "a"), Boundary(0.1, "b", clears=True)))
    assert mark_positions(line, "null") == mark_positions(line, "boundary") != mark_positions(line, "boundary clears")
    ends = dict(re.findall(r'<line class="(null|boundary)" [^>]*y2="(\d+)"', number_line(line)))
    assert int(ends["boundary"]) < int(ends["null"])
    assert [entry.mark for entry in legend_entries(line)][-2:] == ["boundary", "boundary clears"]


def test_legend_values_have_the_precision_of_the_interval() -> None:
    assert [(entry.mark, entry.words) for entry in legend_entries(EFFECT)] == [
        ("estimate", "0.37: estimate"),
        ("range", "0.18 to 0.55: its 95 % interval"),
        ("null", "0: if nothing is memorised"),
        ("boundary", "0.1: not detected below"),
    ]
    assert [entry.words for entry in legend_entries(PLACE)][:2] == [
        "3: estimate",
        "11 to 201: 95 % of models that never saw it",
    ]
    assert 'aria-label="effect, in nats: 0.37: estimate; 0.18 to 0.55' in number_line(EFFECT)


def test_outside_text_is_escaped() -> None:
    assert "<b>" not in number_line(NumberLine('<b>"bold"</b>', 1.0, null=0.0))


def test_infinite_end_is_end_of_the_line() -> None:
    line = NumberLine("effect", 1.0, null=0.0, usual=(-math.inf, 2.0))
    assert Scale.from_line(line).position(-math.inf) == LEFT
    assert "<rect" in number_line(line)


COMMON = ("memorised", "not detected", "forgotten", "not forgotten", BELOW_RELEVANT_SIZE, "undecided", "not assessable")


def colour(name: str) -> str:
    """The colour that the page's style gives a badge of this class."""
    style = (TEMPLATES / "page.css").read_text()
    rules = re.findall(r"((?:\.badge[.\w-]*(?:, )?)+) \{[^}]*[{ ]color: var\(--(\w+)\)", style)
    shades_of_badge = []
    for selectors, shade in rules:
        if f".badge.{name}" in selectors.split(", "):
            shades_of_badge.append(shade)
    if shades_of_badge:
        return shades_of_badge[-1]
    return next(shade for selectors, shade in rules if selectors == ".badge")


def test_common_answers_have_distinct_signs() -> None:
    assert set(ANSWERS) <= set(COMMON)
    for first, second in combinations(COMMON, 2):
        assert sign(first, "open") != sign(second, "open")
        assert colour(kind(first, "open")) != colour(kind(second, "open"))


def test_other_answers_use_sign_of_their_tone() -> None:
    signs = {tone: sign("leaks", tone) for tone in ("accused", "cleared", "open")}
    assert len(set(signs.values())) == 3
    assert all(SHAPES[tone] in svg_text for tone, svg_text in signs.items())
    assert kind("leaks", "accused") == "accused"


def test_badge_escapes_its_text() -> None:
    assert "&lt;b&gt;" in badge("<b>", Meaning("&"))
