"""An image's self-influence without the feature and with it, beside what the paper prints."""

from __future__ import annotations

import json

from tasks.audits.unique_feature.canary_selection import CHOSEN, RankedImage
from tasks.audits.unique_feature.measures.influence_changes import InfluenceChange, influence_change, influence_rows
from tasks.audits.unique_feature.published import PublishedNumbers
from tests.tasks.audits.unique_feature import small
from tests.tasks.audits.unique_feature.made_up import summary_rows
from tests.tasks.summary_rows import by_name

TABLE_2 = "table 2, mnist, mlp1, no regulariser"


def test_an_image_is_traced_without_the_feature_and_with_it() -> None:
    before, after = small.influence([3.0, 9.0, 1.0, 7.0]), small.influence([3.0, 9.0, 8.0, 7.0])
    chosen = small.chosen(2, end="lowest")
    assert chosen.schema == CHOSEN
    table = influence_change(InfluenceChange(RankedImage("lowest", 1)), [chosen, before, after])
    assert [False, True] == table["with_feature"].to_pylist()
    assert [1.0, 8.0] == table["self_influence"].to_pylist()
    assert [0.0, 0.75 - 0.25] == [round(share, 6) for share in table["share_below"].to_pylist()]
    found = summary_rows([table], TABLE_2)
    with_it = json.dumps({"feature": "with", "image": "lowest"})
    without = json.dumps({"feature": "without", "image": "lowest"})
    assert [1.0e-13, 7.5e4] == [found["squared slopes", setting]["published"] for setting in (without, with_it)]
    assert 8.0 == found["self-influence", with_it]["estimate"]


def test_the_published_numbers_stand_beside_the_squared_slopes_without_and_with_the_feature() -> None:
    traced = [
        {"end": end, "with_feature": burnt, "self_influence": i, "squared_slopes": s, "share_below": b}
        for end, burnt, i, s, b in (("highest", False, 1.0, 2.0, 0.9), ("highest", True, 3.0, 4.0, 0.95))
    ]
    traced.append({**traced[1], "end": "lowest"})
    found = by_name(influence_rows(traced, PublishedNumbers(highest=(6.6e4, 7.5e4))))
    rest = [None, None, 1, "training", None, None]
    without, feature, lowest = (
        f'{{"feature": "{name}", "image": "{end}"}}'
        for name, end in (("without", "highest"), ("with", "highest"), ("with", "lowest"))
    )
    assert {
        ("self-influence", without): [1.0, *rest, None],
        ("squared slopes", without): [2.0, *rest, 6.6e4],
        ("share of images with less self-influence", without): [0.9, *rest, None],
        ("self-influence", feature): [3.0, *rest, None],
        ("squared slopes", feature): [4.0, *rest, 7.5e4],
        ("share of images with less self-influence", feature): [0.95, *rest, None],
        ("self-influence", lowest): [3.0, *rest, None],
        ("squared slopes", lowest): [4.0, *rest, None],
        ("share of images with less self-influence", lowest): [0.95, *rest, None],
    } == found
