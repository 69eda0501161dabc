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
from tests.tasks.audits.relational.made_up import NUMERIC, counted, measured, questions, scored, table

SMALL = (
    scored("train", [1, 1, 0], contexts=["A", "A", "B"]),
    scored("validation", [1, 0, 0, 0], [1, 1, 1, 0], contexts=["C", "D", "D", "D"]),
)


def row(found: pa.Table, score: str = "exact_match", golds: str = "one", asked: str = "numeric", at: Any = 1) -> Any:
    assert found.schema == MEMORIZATION
    name = (at, asked, score, golds)
    (only,) = [
        each for each in found.to_pylist() if (each["epoch"], each["questions"], each["score"], each["golds"]) == name
    ]
    return only


def told(found: pa.Table, about: About = NUMERIC) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of the summary by metric and setting."""
    return {(each["metric"], each["setting"]): each for each in rows(Tables([found]), about)}


def setting(**values: Any) -> str:
    named = {"questions": "numeric", "score": "exact match", "golds": "one", **values}
    return json.dumps(named, sort_keys=True)


def test_intervals_are_over_contexts() -> None:
    found = row(measured(table(*SMALL)))
    assert tuple(found[name] for name in ("r_train", "r_validation", "s_train", "s_validation")) == (
        2 / 3,
        1 / 4,
        1.0,
        3 / 4,
    )
    assert pytest.approx(2 / 3 - 1 / 4) == found["m"]
    assert tuple(found[f"{split}_{of}"] for split in ("train", "validation") for of in ("questions", "contexts")) == (
        3,
        2,
        4,
        2,
    )
    for name in ("r_train", "r_validation", "s_train", "s_validation", "m"):
        assert found[f"{name}_low"] <= found[name] <= found[f"{name}_high"]


def test_m_is_a_difference_of_corrupted_contexts_alone() -> None:
    same = measured(counted((5, 20), (5, 20), whole=[0.0] * 20))
    assert (row(same)["m"], row(same)["s_train"], row(same)["r_train"]) == (0.0, 0.0, 0.25)
    assert row(same)["m_low"] < 0 < row(same)["m_high"]
    assert row(same)["p_value"] > 0.1
    more = row(measured(counted((18, 20), (0, 20))))
    assert more["m"] == 0.9
    assert more["m_low"] > 0
    assert more["p_value"] < 0.025


def test_all_gold_answers_raise_held_out_scores() -> None:
    found = measured(table(scored("train", [1, 0]), scored("validation", [0, 0], several=[1, 0])))
    assert tuple(row(found)[name] for name in ("r_train", "r_validation", "m")) == (0.5, 0.0, 0.5)
    assert tuple(row(found, golds="all")[name] for name in ("r_train", "r_validation", "m")) == (0.5, 0.5, 0.0)


def test_f1_is_apart_from_exact_match() -> None:
    found = measured(table(scored("train", [1, 0], f1=0.5), scored("validation", [0, 0], f1=0.25)))
    assert tuple(row(found, "f1")[name] for name in ("r_train", "r_validation", "m")) == (0.5, 0.25, 0.25)
    assert row(found)["m"] == 0.5


def test_question_counts_once_over_replicates() -> None:
    first = table(scored("train", [1, 0]), scored("validation", [0, 0]))
    second = table(scored("train", [1, 1], replicate=1), scored("validation", [1, 0], replicate=1))
    found = row(measured(first, second))
    assert tuple(found[name] for name in ("replicates", "train_questions", "r_train", "r_validation", "m")) == (
        2,
        2,
        0.75,
        0.25,
        0.5,
    )


def test_missing_replicate_is_left_out() -> None:
    whole = table(scored("train", [1, 0]), scored("validation", [0, 0]))
    part = table([each for each in scored("train", [1, 1, 1], replicate=1) if each["corrupted"]])
    found = row(measured(whole, part))
    # The third question was never asked on its whole context; the others were, by the first replicate.
    assert tuple(found[name] for name in ("train_questions", "r_train", "s_train")) == (2, 0.75, 1.0)


def test_a_part_that_nobody_answered_leaves_m_undefined() -> None:
    found = row(measured(table(scored("train", [1, 0]))))
    assert tuple(found[name] for name in ("m", "m_low", "p_value", "train_questions", "validation_questions")) == (
        None,
        None,
        None,
        2,
        0,
    )
    assert None is told(measured(table(scored("train", [1, 0]))))["m", setting(at="end")]["estimate"]


def test_numeric_questions_have_own_rows() -> None:
    ids = [question.id for question in questions("train")[2:4]]
    train = [*scored("train", [1, 0]), *scored("train", [1, 1], ids=ids, numeric=False)]
    found = measured(table(train, scored("validation", [0, 0])))
    assert (row(found)["m"], row(found)["train_questions"]) == (0.5, 2)
    every = row(found, asked="all")
    assert (every["m"], every["train_questions"]) == (0.75, 4)
    assert next(iter(told(found, About("all"))))[0] == "relational m"
    assert '"questions": "all"' in next(iter(told(found, About("all"))))[1]
    assert {"numeric"} == {each["questions"] for each in measured(table(*SMALL)).to_pylist()}


def test_entropy_converts_m_to_nats() -> None:
    few = [question for question in questions("train") if question.golds[0][0] in "23"][:40]
    counts = Counter(question.golds[0] for question in few).values()
    nats = -sum(count / 40 * math.log(count / 40) for count in counts)
    ids = [question.id for question in few]
    found = measured(table(scored("train", [1.0] * 10 + [0.0] * 30, ids=ids), scored("validation", [0, 0])))
    assert pytest.approx(nats) == row(found)["entropy"]
    summary = told(found, About("numeric", epsilon=0.1))
    asked = '{"questions": "numeric"}'
    assert pytest.approx(nats) == summary["H(X)", asked]["estimate"]
    assert pytest.approx(0.25 * nats) == summary["mem, nats", asked]["estimate"]
    assert summary["mem, nats", asked]["null"] == 0.0
    assert pytest.approx(0.1 / nats) == summary["epsilon / H(X)", '{"epsilon": 0.1}']["estimate"]


def test_few_answers_have_no_entropy() -> None:
    found = measured(table(*SMALL))
    assert None is row(found)["entropy"]
    assert not {"H(X)", "mem, nats", "epsilon / H(X)"} & {metric for metric, _ in told(found, About("numeric", 1.0))}


def epochs(*held_out: float) -> pa.Table:
    """Return scores with this held-out accuracy after each epoch from 0; m grows by a tenth per epoch."""
    parts = []
    for epoch, success in enumerate(held_out):
        right = [1.0] * epoch + [0.0] * (10 - epoch)
        whole = [1.0] * round(10 * success) + [0.0] * round(10 - 10 * success)
        parts += [scored("train", right, epoch=epoch), scored("validation", [0.0] * 10, whole, epoch=epoch)]
    return table(*parts)


def test_best_epoch_has_highest_held_out_accuracy() -> None:
    found = measured(epochs(0.2, 0.5, 0.5, 0.4))
    assert sorted(set(found["epoch"].to_pylist())) == [0, 1, 2, 3]
    summary = told(found)
    assert pytest.approx(0.3) == summary["m", setting(at="end")]["estimate"]
    assert pytest.approx(0.1) == summary["m", setting(at="best validation")]["estimate"]
    assert summary["epoch of best validation", "{}"]["estimate"] == 1.0
    assert ("relational m", setting(at="end")) == next(iter(summary))


def test_returned_answers_have_no_epoch() -> None:
    found = measured(counted((5, 10), (2, 10), epoch=None, train_loss=None))
    assert pytest.approx(0.3) == row(found, at=None)["m"]
    assert None is row(found, at=None)["train_loss"]
    summary = told(found)
    assert "epoch of best validation" not in {metric for metric, _ in summary}
    assert pytest.approx(0.3) == summary["m", setting(at="end")]["estimate"]


def test_unanswered_share_counts_held_out_questions() -> None:
    rows_ = scored("validation", [0, 0, 0, 0])
    silent = [each | {"answered": not (each["corrupted"] and at % 4)} for at, each in enumerate(rows_)]
    found = measured(table(scored("train", [0, 0], answered=False), silent))
    assert (row(found)["unanswered_whole"], row(found)["unanswered_corrupted"]) == (0.0, 0.75)
    summary = told(found)
    assert summary["unanswered", '{"contexts": "corrupted"}']["estimate"] == 0.75
    assert summary["unanswered", '{"contexts": "corrupted"}']["n"] == 4


def test_single_gold_answers_have_no_extra_rows() -> None:
    assert not any('"golds": "all"' in setting for _, setting in told(measured(table(*SMALL))))
    several = measured(table(scored("train", [1, 0]), scored("validation", [0, 0], several=[1, 0])))
    both = [setting for metric, setting in told(several) if metric == "m" and '"at": "end"' in setting]
    assert len(both) == 4
    assert '"golds": "one"' in both[0]


def test_published_numbers_belong_to_best_epoch() -> None:
    several = measured(table(scored("train", [1, 0]), scored("validation", [0, 0], several=[1, 0])))
    summary = told(several, About("numeric", cell="T5 on SQuAD"))
    published = {setting: each["published"] for (metric, setting), each in summary.items() if metric == "m"}
    best = {"at": "best validation", "golds": "all"}
    expected = {setting(**best): -0.018, setting(**best, score="f1"): -0.025}
    assert expected == {name: value for name, value in published.items() if value is not None}
    assert summary["s", setting(**best, split="train")]["published"] == 0.792


def test_m_comes_from_its_seed() -> None:
    scores = counted((8, 20), (2, 20))
    assert measured(scores).equals(measured(scores))
    assert not measured(scores).equals(measured(scores, seed=1))


def test_relational_m_excludes_common_answers() -> None:
    common = table(
        scored("train", [1, 1, 0, 0, 0], common_match=0.25), scored("validation", [1, 0, 0, 0, 0], common_match=0.05)
    )
    (found, *others) = measured(common).to_pylist()
    assert pytest.approx(0.4 - 0.2) == found["m"]
    assert pytest.approx((0.4 - 0.25) - (0.2 - 0.05)) == found["relational_m"]
    assert found["relational_m_low"] < found["relational_m"] < found["relational_m_high"]
    assert {None} == {each["relational_m"] for each in others}  # of F1, and of all gold answers
    assert pytest.approx(0) == told(measured(common))["relational m", setting(at="end")]["estimate"]
