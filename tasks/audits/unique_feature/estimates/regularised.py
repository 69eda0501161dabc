"""Whether a regulariser changes the published average: Table 3 beside Table 2."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.unique_feature.estimates.effects import column
from tasks.audits.unique_feature.estimates.units import Units
from tasks.statistics import difference, welch_two_sided
from tasks.summaries import Row, row


def against_plain(units: Units, plain: Units) -> Iterator[Row]:
    """The mean over M > 0, and the effects of the canary, of the regularised network less those of the plain one.

    Welch's interval and two-tailed p-value over trainings. The canaries are each network's own, as published, so the
    two samples are independent.
    """
    positive = [[m for m in column(each.rows, "m") if m > 0] for each in (units, plain)]
    yield _compared("M where positive, less plain", {}, positive, units.model)
    for metric, name, setting in (
        ("M effect, less plain", "m_effect", {}),
        ("M_w effect, less plain", "m_w_probe_effect", {"images": "probe"}),
    ):
        yield _compared(metric, setting, [column(each.rows, name) for each in (units, plain)], units.pair)


def _compared(metric: str, setting: Row, samples: list[list[float]], unit: str) -> Row:
    first, second = samples
    return row(metric, setting, difference(first, second), unit, 0.0, welch_two_sided(first, second).p_value)
