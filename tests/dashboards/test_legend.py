"""Legends of figures."""

from __future__ import annotations

import pytest

from dashboards import drawing, legend


def test_a_legend_has_its_entries_in_the_upper_left_corner_in_their_order() -> None:
    with drawing.style():
        figure = drawing.canvas(2.0)
        legend.add_above(figure, [legend.line("first", color="red"), legend.area("second", color="blue")])
        svg = drawing.svg(figure, "legend")
    (placed,) = figure.legends
    box = placed.get_window_extent()
    assert ["first", "second"] == [text.get_text() for text in placed.get_texts()]
    assert svg.index(">first<") < svg.index(">second<")
    assert (0, True) == (round(box.x0 / figure.dpi), abs(box.y1 / figure.dpi - 2.0) < 0.1)


def test_the_entries_of_a_series_look_like_its_lines() -> None:
    joined, alone = (legend.series(["one", "two"], joined, linewidth=2) for joined in (True, False))
    looks = [(line.get_label(), line.get_marker(), line.get_linestyle(), line.get_linewidth()) for line in joined]
    assert [("one", "o", "-", 2), ("two", "^", "--", 2)] == looks
    assert [drawing.light("accent"), drawing.light("violet")] == [line.get_color() for line in joined]
    assert ["None", "None"] == [line.get_linestyle() for line in alone]


@pytest.mark.parametrize(
    ("letters", "entries", "columns", "height"), [(24, 3, 2, 2 * legend.ROW), (25, 3, 1, 3 * legend.ROW)]
)
def test_long_labels_stand_below_one_another(letters: int, entries: int, columns: int, height: float) -> None:
    beside = legend.columns(["a", letters * "b", "c"])
    assert (columns, height) == (beside, legend.height(entries, beside))


def test_a_list_below_the_panels_says_what_each_line_is_worth() -> None:
    with drawing.style():
        figure = drawing.canvas(2.0)
        legend.add_below(
            figure, 0.62, [("t-test", drawing.SERIES[0], "0.5"), ("rank", drawing.SERIES[1], "")], "detected"
        )
    (axes,) = figure.axes
    texts = {text.get_text(): text.get_position() for text in axes.texts}
    right = drawing.WIDTH - 0.1
    places = {"detected": (right, 0.42), "t-test": (0.72, 0.17), "0.5": (right, 0.17), "rank": (0.72, -0.08)}
    assert {name: pytest.approx(place) for name, place in places.items()} == texts
    assert (5.2, 0.62) == pytest.approx(tuple(axes.get_window_extent().size / figure.dpi))
