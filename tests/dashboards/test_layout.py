"""Where axes stand in a figure."""

from __future__ import annotations

import pytest

from dashboards import drawing, layout
from dashboards.chart import Axis, row_panel


def test_stacked_boxes_go_from_the_top_down_and_are_as_wide_as_the_page() -> None:
    upper, lower = layout.stack(2, 1.5)
    width = drawing.WIDTH - layout.LEFT - layout.RIGHT
    assert pytest.approx((0.75, 2.0, width, 1.1)) == upper
    assert pytest.approx((0.75, 0.5, width, 1.1)) == lower


def test_rows_have_their_names_beside_them_the_first_at_the_top() -> None:
    rows = layout.rows(["first", "a name that is much too long for its row"], 0.4)
    figure = drawing.canvas(rows.height)
    row_panel(rows, [], Axis()).draw(figure)
    (axes,) = figure.axes
    figure.canvas.draw()
    labels = {tick.get_position()[1]: tick.get_text() for tick in axes.get_yticklabels()}
    assert [1, 0] == rows.y.tolist()
    assert {1: "first", 0: "a name that is much too…"} == labels
    assert pytest.approx(0.3 * 2 + 0.5 + 0.4) == figure.get_size_inches()[1]


@pytest.mark.parametrize(("shown", "of", "words"), [(3, 3, ""), (3, 5, " The first 3 of 5 rows are drawn.")])
def test_what_is_left_out_is_said(shown: int, of: int, words: str) -> None:
    assert words == layout.left_out_note(shown, of, "rows")
