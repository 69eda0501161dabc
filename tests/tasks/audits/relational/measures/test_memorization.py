"""m, r and s of scores with known means."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.relational.config import About
from tasks.audits.relational.measures.memorization import MEMORIZATION, rows
from tasks.contract.measure import Tables
from tests.tasks.audits.relational.made_up import NUMERIC, counted_scores, memorization_of, questions, score_rows, table

SMALL = (
    score_rows("train", [1, 1, 0], contexts=["A", "A", "B"]),
    score_rows("validation", [1, 0, 0, 0], [1, 1, 1, 0], contexts=["C", "D", "D", "D"]),
)


def row(
    memorization_table: pa.Table,
    score: str = "exact_match",
    golds: str = "one",
    subset: str = "numeric",
    epoch: Any = 1,
) -> Any:
    assert memorization_table.schema == MEMORIZATION
    name = (epoch, subset, score, golds)
    (matching_row,) = [
        table_row
        for table_row in memorization_table.to_pylist()
        if (table_row["epoch"], table_row["questions"], table_row["score"], table_row["golds"]) == name
    ]
    return matching_row


def summary_rows(memorization_table: pa.Table, about: About = NUMERIC) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of the summary by metric and setting."""
    result = {}
    for summary_row in rows(Tables([memorization_table]), about):
        result[(summary_row["metric"], summary_row["setting"])] = summary_row
    return result


def setting(**values: Any) -> str:
    values_with_defaults = {"questions": "numeric", "score": "exact match", "golds": "one", **values}
    return json.dumps(values_with_defaults, sort_keys=True)


def test_intervals_are_over_contexts() -> None:
    m_row = row(memorization_of(table(*SMALL)))
    assert tuple(m_row[name] for name in ("r_train", "r_validation", "s_train", "s_validation")) == (
        2 / 3,
        1 / 4,
        1.0,
        3 / 4,
    )
    assert m_row["m"] == pytest.approx(2 / 3 - 1 / 4)
    assert tuple(
        m_row[f"{split}_{unit}"] for split in ("train", "validation") for unit in ("questions", "contexts")
    ) == (
        3,
        2,
        4,
        2,
    )
    for name in ("r_train", "r_validation", "s_train", "s_validation", "m"):
        assert m_row[f"{name}_low"] <= m_row[name] <= m_row[f"{name}_high"]


def test_m_depends_only_on_corrupted_contexts() -> None:
    equal_parts = memorization_of(counted_scores((5, 20), (5, 20), whole=[0.0] * 20))
    assert row(equal_parts)["m"] == 0.0
    assert row(equal_parts)["s_train"] == 0.0
    assert row(equal_parts)["r_train"] == 0.25
    assert row(equal_parts)["m_low"] < 0 < row(equal_parts)["m_high"]
    assert row(equal_parts)["p_value"] > 0.1
    memorised_row = row(memorization_of(counted_scores((18, 20), (0, 20))))
    assert memorised_row["m"] == 0.9
    assert memorised_row["m_low"] > 0
    assert memorised_row["p_value"] < 0.025


def test_all_gold_answers_raise_held_out_scores() -> None:
    memorization_table = memorization_of(
        table(score_rows("train", [1, 0]), score_rows("validation", [0, 0], several=[1, 0]))
    )
    assert tuple(row(memorization_table)[name] for name in ("r_train", "r_validation", "m")) == (0.5, 0.0, 0.5)
    assert tuple(row(memorization_table, golds="all")[name] for name in ("r_train", "r_validation", "m")) == (
        0.5,
        0.5,
        0.0,
    )


def test_f1_is_separate_from_exact_match() -> None:
    memorization_table = memorization_of(
        table(score_rows("train", [1, 0], f1=0.5), score_rows("validation", [0, 0], f1=0.25))
    )
    assert tuple(row(memorization_table, "f1")[name] for name in ("r_train", "r_validation", "m")) == (0.5, 0.25, 0.25)
    assert row(memorization_table)["m"] == 0.5


def test_question_counts_once_over_replicates() -> None:
    first = table(score_rows("train", [1, 0]), score_rows("validation", [0, 0]))
    second = table(score_rows("train", [1, 1], replicate=1), score_rows("validation", [1, 0], replicate=1))
    m_row = row(memorization_of(first, second))
    assert tuple(m_row[name] for name in ("replicates", "train_questions", "r_train", "r_validation", "m")) == (
        2,
        2,
        0.75,
        0.25,
        0.5,
    )


def test_missing_replicate_is_left_out() -> None:
    complete_table = table(score_rows("train", [1, 0]), score_rows("validation", [0, 0]))
    partial_table = table(
        [score_row for score_row in score_rows("train", [1, 1, 1], replicate=1) if score_row["corrupted"]]
    )
    m_row = row(memorization_of(complete_table, partial_table))
    # The third question lacks an answer on its whole context; the first replicate has the others.
    assert tuple(m_row[name] for name in ("train_questions", "r_train", "s_train")) == (2, 0.75, 1.0)


def test_unanswered_part_leaves_m_undefined() -> None:
    m_row = row(memorization_of(table(score_rows("train", [1, 0]))))
    assert tuple(m_row[name] for name in ("m", "m_low", "p_value", "train_questions", "validation_questions")) == (
        None,
        None,
        None,
        2,
        0,
    )
    assert summary_rows(memorization_of(table(score_rows("train", [1, 0]))))["m", setting(at="end")]["estimate"] is None


def test_numeric_questions_have_own_rows() -> None:
    ids = [question.id for question in questions("train")[2:4]]
    train = [*score_rows("train", [1, 0]), *score_rows("train", [1, 1], ids=ids, numeric=False)]
    memorization_table = memorization_of(table(train, score_rows("validation", [0, 0])))
    assert row(memorization_table)["m"] == 0.5
    assert row(memorization_table)["train_questions"] == 2
    row_of_all = row(memorization_table, subset="all")
    assert row_of_all["m"] == 0.75
    assert row_of_all["train_questions"] == 4
    assert next(iter(summary_rows(memorization_table, About("all"))))[0] == "relational m"
    assert '"questions": "all"' in next(iter(summary_rows(memorization_table, About("all"))))[1]
    assert {table_row["questions"] for table_row in memorization_of(table(*SMALL)).to_pylist()} == {"numeric"}


def test_entropy_converts_m_to_nats() -> None:
    chosen_questions = [question for question in questions("train") if question.golds[0][0] in "23"][:40]
    counts = Counter(question.golds[0] for question in chosen_questions).values()
    nats = -sum(count / 40 * math.log(count / 40) for count in counts)
    ids = [question.id for question in chosen_questions]
    memorization_table = memorization_of(
        table(score_rows("train", [1.0] * 10 + [0.0] * 30, ids=ids), score_rows("validation", [0, 0]))
    )
    assert row(memorization_table)["entropy"] == pytest.approx(nats)
    summary = summary_rows(memorization_table, About("numeric", epsilon=0.1))
    question_setting = '{"questions": "numeric"}'
    assert summary["H(X)", question_setting]["estimate"] == pytest.approx(nats)
    assert summary["mem, nats", question_setting]["estimate"] == pytest.approx(0.25 * nats)
    assert summary["mem, nats", question_setting]["null"] == 0.0
    assert summary["epsilon / H(X)", '{"epsilon": 0.1}']["estimate"] == pytest.approx(0.1 / nats)


def test_few_answers_have_no_entropy() -> None:
    memorization_table = memorization_of(table(*SMALL))
    assert row(memorization_table)["entropy"] is None
    assert not {"H(X)", "mem, nats", "epsilon / H(X)"} & {
        metric for metric, _ in summary_rows(memorization_table, About("numeric", 1.0))
    }


def epochs(*held_out: float) -> pa.Table:
    """Return scores with this held-out accuracy after each epoch from 0; m grows by a tenth per epoch."""
    parts = []
    for epoch, success in enumerate(held_out):
        right = [1.0] * epoch + [0.0] * (10 - epoch)
        held_out_scores = [1.0] * round(10 * success) + [0.0] * round(10 - 10 * success)
        parts += [
            score_rows("train", right, epoch=epoch),
            score_rows("validation", [0.0] * 10, held_out_scores, epoch=epoch),
        ]
    return table(*parts)


def test_best_epoch_has_highest_held_out_accuracy() -> None:
    memorization_table = memorization_of(epochs(0.2, 0.5, 0.5, 0.4))
    assert sorted(set(memorization_table["epoch"].to_pylist())) == [0, 1, 2, 3]
    summary = summary_rows(memorization_table)
    assert summary["m", setting(at="end")]["estimate"] == pytest.approx(0.3)
    assert summary["m", setting(at="best validation")]["estimate"] == pytest.approx(0.1)
    assert summary["epoch of best validation", "{}"]["estimate"] == 1.0
    assert next(iter(summary)) == ("relational m", setting(at="end"))


def test_returned_answers_have_no_epoch() -> None:
    memorization_table = memorization_of(counted_scores((5, 10), (2, 10), epoch=None, train_loss=None))
    assert row(memorization_table, epoch=None)["m"] == pytest.approx(0.3)
    assert row(memorization_table, epoch=None)["train_loss"] is None
    summary = summary_rows(memorization_table)
    assert "epoch of best validation" not in {metric for metric, _ in summary}
    assert summary["m", setting(at="end")]["estimate"] == pytest.approx(0.3)


def test_unanswered_share_counts_held_out_questions() -> None:
    rows_ = score_rows("validation", [0, 0, 0, 0])
    silent = []
    for index, score_row in enumerate(rows_):
        silent.append(score_row | {"answered": not (score_row["corrupted"] and index % 4)})
    memorization_table = memorization_of(table(score_rows("train", [0, 0], answered=False), silent))
    assert row(memorization_table)["unanswered_whole"] == 0.0
    assert row(memorization_table)["unanswered_corrupted"] == 0.75
    summary = summary_rows(memorization_table)
    assert summary["unanswered", '{"contexts": "corrupted"}']["estimate"] == 0.75
    assert summary["unanswered", '{"contexts": "corrupted"}']["n"] == 4


def test_single_gold_answers_have_no_extra_rows() -> None:
    assert not any('"golds": "all"' in setting for _, setting in summary_rows(memorization_of(table(*SMALL))))
    with_several_golds = memorization_of(
        table(score_rows("train", [1, 0]), score_rows("validation", [0, 0], several=[1, 0]))
    )
    settings_of_m = []
    for metric, setting in summary_rows(with_several_golds):
        if metric == "m" and '"at": "end"' in setting:
            settings_of_m.append(setting)
    assert len(settings_of_m) == 4
    assert '"golds": "one"' in settings_of_m[0]


def test_published_numbers_belong_to_best_epoch() -> None:
    with_several_golds = memorization_of(
        table(score_rows("train", [1, 0]), score_rows("validation", [0, 0], several=[1, 0]))
    )
    summary = summary_rows(with_several_golds, About("numeric", cell="T5 on SQuAD"))
    published = {
        setting: summary_row["published"] for (metric, setting), summary_row in summary.items() if metric == "m"
    }
    best = {"at": "best validation", "golds": "all"}
    expected = {setting(**best): -0.018, setting(**best, score="f1"): -0.025}
    assert expected == {name: value for name, value in published.items() if value is not None}
    assert summary["s", setting(**best, split="train")]["published"] == 0.792


def test_seed_determines_m() -> None:
    scores = counted_scores((8, 20), (2, 20))
    assert memorization_of(scores).equals(memorization_of(scores))
    assert not memorization_of(scores).equals(memorization_of(scores, seed=1))


def test_relational_m_excludes_common_answers() -> None:
    common = table(
        score_rows("train", [1, 1, 0, 0, 0], common_match=0.25),
        score_rows("validation", [1, 0, 0, 0, 0], common_match=0.05),
    )
    (first_row, *other_rows) = memorization_of(common).to_pylist()
    assert first_row["m"] == pytest.approx(0.4 - 0.2)
    assert first_row["relational_m"] == pytest.approx((0.4 - 0.25) - (0.2 - 0.05))
    assert first_row["relational_m_low"] < first_row["relational_m"] < first_row["relational_m_high"]
    # for F1, and for all gold answers
    assert {other_row["relational_m"] for other_row in other_rows} == {None}
    assert summary_rows(memorization_of(common))["relational m", setting(at="end")]["estimate"] == pytest.approx(0)
