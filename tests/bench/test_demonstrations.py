"""The bench of quickstarts: what a run answers is counted as the run says itself, and a seed is run once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.demonstrations import Outcome, clopper_pearson, markdown, outcomes

SHORT = ("scale=tiny", "replicates=1", "epochs=1", "permutations=199", "targets=D_C")


@pytest.mark.slow
def test_a_run_is_counted_and_its_seed_not_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "runs.jsonl"
    (found,) = outcomes("forgetting", "quickstart", [3], SHORT, kept)
    assert {"D_C"} == set(found.answers)
    assert found.right == (found.answers["D_C"] == "forgotten")
    assert 1 == len(kept.read_text().splitlines())
    assert [found] == list(outcomes("no audit", "none", [3], (), kept))


def test_a_seed_counts_where_every_answer_is_right() -> None:
    right = Outcome(7, {"first": "forgotten", "second": "not forgotten"}, 2, 1.0)
    wrong = Outcome(8, {"first": "not judged", "second": "not forgotten"}, 1, 3.0)
    table = markdown([right, wrong])
    assert "| first | forgotten 1, not judged 1 | 2 |" in table
    assert "everything is right: 1 of 2, 50 % [1, 99] (95 % Clopper-Pearson)" in table
    assert "answers that are right: 3 of 4. Other seeds: 8. Processor time of a run: 2 s." in table


def test_the_interval_is_the_exact_one() -> None:
    # Where all of n succeed, the lower limit is the nth root of 2.5 %.
    assert clopper_pearson(20, 20) == pytest.approx((0.025 ** (1 / 20), 1.0))
    assert clopper_pearson(0, 20) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))
