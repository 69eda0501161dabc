"""Answers of single models: the deciding rank, sentences and limits."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.measures.exact_ranks import BESIDE, BESIDE_PARTS
from tasks.audits.unique_feature.measures.family import FOUND, OTHERS, PUSH, RANK, UPPER
from tasks.audits.unique_feature.population import GLYPHS, LEVEL, Population
from tasks.audits.unique_feature.single_models.answer import ANSWERING, PARTLY, thresholds
from tasks.audits.unique_feature.single_models.evidence import (
    PanelEvidence,
    Push,
    Rank,
    TableCheck,
    read_panel_evidence,
)
from tasks.audits.unique_feature.single_models.look_alikes import RANK as PART_RANK
from tasks.audits.unique_feature.single_models.output_checks import LABELS, TWICE
from tasks.audits.unique_feature.single_models.sentences import (
    BESIDE_LIMITS,
    GUESSED,
    LIMITS,
    NAMED_FEATURE,
    WEIGHT_LIMITS,
)
from tasks.audits.unique_feature.single_models.weight_ranks import BY_WEIGHTS
from tasks.contract.certificate import Certificate
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import index_rows
from tasks.contract.ties import tied_row
from tasks.contract.verdict import Verdict
from tasks.datasets.features import Feature, Glyph, Words
from tasks.external.model_file import ModelFile
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.made_up import CLEAR, configure, judge

NAMES = Words("JANE DOE", size=9)


def asked(feature: Feature = NAMES, members: int = 201, **given: Any) -> UniqueFeature:
    settings = {"given.shape": (64, 64, 1), "given.family.count": members - 1}
    return configure(settings | {f"given.{name}": value for name, value in given.items()}, feature=feature)


def panel_verdict(summary: pa.Table) -> Verdict:
    return verdict(asked(Glyph()), summary)


def of_models(p_value: float, feature: Feature = NAMES) -> Certificate:
    found = AUDIT.certify("Is it?", asked(feature), pushed(0.4, 0.2, 0.6, p_value))
    assert found is not None
    return found


def pushed(
    estimate: float | None,
    low: float,
    high: float,
    p_value: float,
    n: int = 1,
    known: bool = True,
    power: float = 0.8,
    members: int = 201,
    parts: tuple[float, ...] = (1 / 101, 5 / 101),
) -> pa.Table:
    setting = json.dumps({"label": 3, "label known": known})
    rows: list[dict[str, Any]] = [
        {"metric": "M", "setting": "{}", "estimate": 9.0},
        {"metric": PUSH, "setting": setting, "estimate": estimate, "n": n, "null": 0.25, "p_value": p_value},
        {"metric": OTHERS, "setting": setting, "estimate": 0.25, "low": low, "high": 0.375, "n": members - 1},
        {"metric": UPPER, "setting": '{"confidence": 0.975}', "estimate": high, "n": n},
        {"metric": FOUND, "setting": '{"nats": 0.1}', "estimate": power},
        {"metric": RANK, "setting": "{}", "estimate": members * p_value, "null": (members + 1) / 2, "n": n}
        | {"p_value": p_value},
    ]
    for part, p_of_part in enumerate(parts, start=1):
        about = json.dumps({"part": part, "parts": len(parts), "others": 100})
        rows.append({"metric": PART_RANK, "setting": about, "estimate": 101 * p_of_part, "n": n, "p_value": p_of_part})
    return pa.Table.from_pylist([dict.fromkeys(SUMMARY.names) | row for row in rows], SUMMARY)


def test_an_owner_who_could_guess_the_order_is_told_of_and_models_speak_together() -> None:
    sent = asked(Glyph(), outputs=(File("o.csv"),))
    secret = with_settings(sent, {"given.secret": "s" * 16})
    table = pushed(0.4, 0.2, 0.6, 0.5, n=2)
    assert [GUESSED in verdict(config, table).limits for config in (asked(Glyph()), secret)] == [False, False]
    assert GUESSED in verdict(sent, table).limits
    sentences = [panel_verdict(pushed(0.4, 0.2, 0.6, 0.5, n=n)).sentence for n in (2, 1)]
    assert ["2 models together rank" in sentence for sentence in sentences] == [True, False]


SMALL, LARGE = replace(CLEAR.rank, p=LEVEL), replace(CLEAR.rank, p=LEVEL + 1e-9)
APART: dict[str, Any] = {"parts": (SMALL, SMALL)}
TWO = (ModelFile("a.pt"), ModelFile("b.pt"))
ASKED, REFERENCE, TABLE = (
    asked(models=(ModelFile("model.pt"),)),
    asked(models=(ModelFile("model.pt"),), references=TWO, label=3),
    asked(outputs=(File("o.csv"),)),
)
LAYER = with_settings(ASKED, {"judged_by": "first_layer", "given.label": 3})


@pytest.mark.parametrize(
    ("config", "changes", "answer"),
    [
        (ASKED, {}, "not detected"),
        (ASKED, {"rank": LARGE}, "not detected"),
        (ASKED, {"rank": SMALL} | APART, "memorised"),
        (ASKED, {"rank": SMALL}, PARTLY),  # nothing tells it from those that share a part with it
        (ASKED, {"rank": SMALL, "parts": (SMALL, LARGE)}, PARTLY),
        (ASKED, {"rank": SMALL, "parts": (LARGE, SMALL)}, PARTLY),
        (ASKED, APART, "not detected"),  # look-alikes alone accuse nobody
        (ASKED, {"tied": tied_row(0.051, 1, "model")}, "not assessable"),
        (ASKED, {"tied": tied_row(0.051, 1, "model"), "rank": SMALL} | APART, "memorised"),
        (REFERENCE, {"tied": tied_row(0.051, 1, "model"), "second_rank": LARGE}, "not assessable"),
        (ASKED, {"tied": tied_row(0.05, 1, "model")}, "not detected"),
        (ASKED, {"push": replace(CLEAR.push, upper=SMALLEST)}, "undecided"),
        (ASKED, {"push": replace(CLEAR.push, upper=None)}, "undecided"),
        (ASKED, {"push": replace(CLEAR.push, power=0.7999)}, "undecided"),
        (REFERENCE, {"second_rank": LARGE}, "not detected"),
        (REFERENCE, {"second_rank": SMALL} | APART, "memorised"),  # whatever its rank in the family
        (REFERENCE, {"second_rank": SMALL, "parts": (SMALL, LARGE)}, PARTLY),
        (REFERENCE, {"second_rank": LARGE, "rank": SMALL} | APART, "undecided"),
        (REFERENCE, {"lacks_second_rank": True}, "undecided"),
        (REFERENCE, {"lacks_second_rank": True, "rank": SMALL} | APART, "undecided"),
        (ASKED, {"second_rank": SMALL, "rank": LARGE} | APART, PARTLY),  # a rule of references alone
        (LAYER, {"second_rank": LARGE}, "not detected"),
        (LAYER, {"second_rank": SMALL} | APART, "memorised"),
        (LAYER, {"second_rank": SMALL, "parts": (LARGE, SMALL)}, PARTLY),
        (LAYER, {"rank": SMALL} | APART, PARTLY),  # without the rank by weights none accuses
        (TABLE, {"checks": (TableCheck(1, 40, 0),)}, "not detected"),
        (TABLE, {"checks": (TableCheck(1, 40, 1),)}, "not assessable"),
        (TABLE, {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, 0.01),)}, "not detected"),
        (TABLE, {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, 0.0099),)}, "not assessable"),
        (TABLE, {"unchecked": 1}, "not assessable"),
        (
            TABLE,
            {"unchecked": 1, "rank": SMALL} | APART,
            "memorised",
        ),  # altered tables accuse nobody who did not see it
    ],
)
def test_the_first_rule_that_holds_decides(config: UniqueFeature, changes: dict[str, Any], answer: str) -> None:
    assert judge(ANSWERING, config, replace(CLEAR, **changes))[0].answer == answer


def made(metric: str, estimate: float | None, n: int, p_value: float | None = None, **setting: Any) -> dict[str, Any]:
    about = {"metric": metric, "setting": json.dumps(setting), "estimate": estimate, "n": n, "p_value": p_value}
    return dict.fromkeys(SUMMARY.names) | about


def test_the_evidence_is_read_from_the_summary() -> None:
    config = asked(outputs=(File("o.csv"), File("p.csv"), File("q.csv")), references=TWO, label=3)
    rows = [
        *(row for row in pushed(0.4, 0.2, 0.6, 0.01, n=3).to_pylist() if row["metric"] != FOUND),
        made(FOUND, 0.7, 3, nats=0.05),
        made(BESIDE, 70.4, 3, 0.07, references=2) | {"setting": json.dumps({"references": 2, GLYPHS: 1000})},
        made(BESIDE_PARTS, 4.0, 3, 0.04, part=1, parts=1, others=99, references=2),
        tied_row(0.25, 3, "model"),
        made(TWICE, 0.051, 40, table=1, key="abc"),
        made(LABELS, 0.9, 20, 0.3, table=1) | {"null": 0.95},
        made(TWICE, None, 30, table=2, key="later"),
    ]
    settings = {row["metric"]: row["setting"] for row in rows}
    assert PanelEvidence(
        names=tuple((metric, settings[metric]) for metric in (BESIDE, RANK, PUSH, OTHERS)),
        rank=Rank(2, 0.01, Population(201), 3),
        second_rank=Rank(70, 0.07, Population(1000, True), 3, 2),
        parts=(Rank(4, 0.04, Population(100), 3, 2),),
        push=Push(0.4, None, (0.2, 0.375), 0.6, 0.05, 0.7),
        tied=tied_row(0.25, 3, "model"),
        checks=(TableCheck(1, 40, 2, 20, 18, 0.95, 0.3), TableCheck(2, 30, 0)),
        unchecked=1,
        key="abc",
        lacks_second_rank=False,
    ) == read_panel_evidence(config, index_rows(pa.Table.from_pylist(rows, SUMMARY)))


def test_what_the_summary_lacks_is_not_made_up() -> None:
    rows = pushed(0.4, 0.2, 0.6, 0.01, known=False).to_pylist()
    kept = [row | {"low": None} if row["metric"] == OTHERS else row for row in rows]
    kept = [row for row in kept if row["metric"] not in (UPPER, FOUND)]
    found = read_panel_evidence(ASKED, index_rows(pa.Table.from_pylist(kept, SUMMARY)))
    assert found is not None
    assert Push(0.4, 3, None, None, SMALLEST, 0.0) == found.push
    assert (found.second_rank, found.lacks_second_rank, found.tied) == (None, False, None)
    assert (found.checks, found.unchecked, found.key) == ((), 0, "")
    more = pa.Table.from_pylist([*rows, made(TWICE, 0.0, 9, table=1, key="a")], SUMMARY)
    checked = read_panel_evidence(ASKED, index_rows(more))
    assert checked is not None
    (check,) = checked.checks
    assert (checked.unchecked, check.labelled, check.right, check.stated, check.p) == (0, 0, 0, None, None)
    assert [Rank(1, 1 / 101, Population(101), 1), Rank(5, 5 / 101, Population(101), 1)] == [*found.parts]
    lacks = read_panel_evidence(LAYER, index_rows(pa.Table.from_pylist(rows, SUMMARY)))
    assert lacks is not None
    assert (lacks.second_rank, lacks.lacks_second_rank, lacks.parts) == (None, True, ())
    rows.append(made(BY_WEIGHTS, 9.0, 1, 0.09, others=99))
    weighed = read_panel_evidence(LAYER, index_rows(pa.Table.from_pylist(rows, SUMMARY)))
    assert weighed is not None
    assert (Rank(9, 0.09, Population(100), 1), False) == (weighed.second_rank, weighed.lacks_second_rank)
    for missing in (RANK, PUSH, OTHERS):
        less = [row for row in rows if row["metric"] != missing]
        assert read_panel_evidence(ASKED, index_rows(pa.Table.from_pylist(less, SUMMARY))) is None


def test_evidence_with_a_small_rank_is_not_clear() -> None:
    ranks = [{}, {"rank": SMALL}, {"second_rank": SMALL}, {"second_rank": LARGE}]
    assert [replace(CLEAR, **each).is_clear for each in ranks] == [True, False, False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, 0.01),)},
        {"checks": (TableCheck(1, 40, 0, 20, 9, None, 0.001),)},
        {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, None),)},
        {"checks": (TableCheck(1, 40, 1), TableCheck(2, 40, 0, 20, 9, 0.9, 0.0012)), "unchecked": 1},
    ],
)
def test_a_table_that_no_model_says_is_doubted(golden: Golden, changes: dict[str, Any]) -> None:
    golden(replace(CLEAR, **changes).describe_doubts())


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (ASKED, {}),
        (ASKED, APART),
        (ASKED, {"push": Push(-0.3, 4, None, None, 0.1, 0.8)}),
        (ASKED, {"push": replace(CLEAR.push, upper=0.25)}),
        (ASKED, {"push": replace(CLEAR.push, power=0.79)}),
        (ASKED, {"tied": tied_row(0.5, 1, "model")}),
        (REFERENCE, {"lacks_second_rank": True}),
        (REFERENCE, {"second_rank": Rank(70, 0.07, Population(1000, True), 1, 2), "rank": SMALL}),
        (REFERENCE, {"second_rank": Rank(7, 0.05, Population(100), 1, 2)} | APART),
        (LAYER, {"second_rank": Rank(70, 0.07, Population(100), 1)}),
        (TABLE, {"unchecked": 1}),
    ],
)  # fmt: skip
def test_the_reason_of_an_answer_ends_its_sentence(
    golden: Golden, config: UniqueFeature, changes: dict[str, Any]
) -> None:
    evidence = replace(CLEAR, **changes)
    said, _page = judge(ANSWERING, config, evidence)
    golden(said.sentence)
    assert [LIMITS in said.limits, BESIDE_LIMITS in said.limits, WEIGHT_LIMITS in said.limits] == [
        True,
        evidence.second_rank is not None and config is REFERENCE,
        evidence.second_rank is not None and config is LAYER,
    ]


def test_the_rules_name_the_places_and_the_rates_of_the_population_that_decides() -> None:
    few = asked(Glyph(), members=10)
    beside = replace(few, question=replace(REFERENCE.question, shape=(28, 28, 1), family=few.family))
    names = ("place", "called", "place_beside", "called_beside", "called_at_all")
    alone = ["at a place that a family of this size does not have", "0", "at place 222,870 or better", "5", "0"]
    assert [alone, [*alone[:-1], "5"]] == [[thresholds(config)[name] for name in names] for config in (few, beside)]
    (place, called, *_, at_all) = (thresholds(asked(members=31))[name] for name in names)
    assert (place, called, at_all) == ("at place 1 or better", "3.2", "3.2")


def test_the_key_of_what_was_handed_out_is_told() -> None:
    told = "The SHA-256 of the key of the images that were handed out begins with abc."
    limits = [judge(ANSWERING, TABLE, replace(CLEAR, key=key))[0].limits for key in ("", "abc")]
    assert [told in each for each in limits] == [False, True]


@pytest.mark.parametrize(
    ("low", "high", "p_value", "answer"),
    [
        (0.2, 0.6, 0.01, "memorised"),
        (-0.2, 0.6, 0.05, "memorised"),
        (0.2, 0.6, 0.051, "undecided"),
        (-0.3, 0.09, 0.051, "not detected"),
        (-0.3, SMALLEST, 0.051, "undecided"),
    ],
)
def test_the_rank_decides_of_a_model_that_is_asked_alone(
    golden: Golden, low: float, high: float, p_value: float, answer: str
) -> None:
    said = panel_verdict(pushed(0.4, low, high, p_value))
    assert answer == said.answer
    place = f"at place {201 * p_value:.0f} of 201 in its family (p = {p_value:.2g})"
    assert said.sentence.startswith(f"{answer.capitalize()}: the model ranks the letter A {place}")
    golden(said.sentence)
    assert ((RANK, "{}"), f"{LIMITS} {asked(Glyph()).describe_draw()}") == (said.rows[0], said.limits)
    assert [metric for metric, _ in said.rows] == [RANK, PUSH, OTHERS]


def test_it_says_who_chose_the_draw_and_what_the_auditor_named() -> None:
    glyph = asked(Glyph(kind="random"))
    bound = {"given.secret": "s" * 16, "given.nonce": "n" * 16, "given.commitment": "ab" * 32}
    drawn, named = (with_settings(config, bound) for config in (glyph, asked(Glyph())))
    summary = pushed(0.4, 0.2, 0.6, 0.01)
    limits = [verdict(config, summary).limits for config in (drawn, named)]
    assert all(f"commitment {'ab' * 32} and the nonce {'n' * 16} of the other party" in each for each in limits)
    assert ["The draw of the feature and its family is bound" in each for each in limits] == [True, False]
    assert [NAMED_FEATURE in each for each in limits] == [False, True]
    assert drawn.asked_feature == Glyph(kind="random", seed=drawn.derive_seed("glyph"))


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (0.5, 1 / 101),
        (0.5, 0.5),
    ],
)
def test_a_feature_that_is_not_told_from_its_look_alikes_is_partly_memorised(
    golden: Golden, parts: tuple[float, ...]
) -> None:
    rows = pushed(0.4, 0.2, 0.6, 0.01, parts=parts)
    said = panel_verdict(rows)
    assert said.answer == PARTLY
    golden(said.sentence)
    found = AUDIT.certify("Is it?", asked(), rows)
    assert found is not None
    golden(found.findings[0].sentence)
    assert "family.look_alikes=100" in found.steps[0]


def test_the_first_push_of_a_summary_decides() -> None:
    rows = [pushed(0.4, 0.2, 0.6, 0.01), pushed(None, 0.0, 0.0, 1.0)]
    assert [panel_verdict(pa.concat_tables(each)).answer for each in (rows, rows[::-1])] == ["memorised", "undecided"]


def test_it_says_how_many_models_were_asked_and_about_which_label(golden: Golden) -> None:
    golden(panel_verdict(pushed(0.4, 0.2, 0.6, 0.01, n=2)).sentence, "sentence")
    golden(panel_verdict(pushed(0.4, 0.2, 0.6, 0.01)).sentence, "sentence")
    golden(panel_verdict(pushed(0.4, 0.2, 0.6, 0.01, known=False)).sentence, "sentence")


@pytest.mark.parametrize("nothing", [SUMMARY.empty_table(), pushed(None, 0.0, 0.0, 1.0)])
def test_where_no_model_was_asked_alone_nothing_is_decided(nothing: pa.Table) -> None:
    said = panel_verdict(nothing)
    assert (said.answer, said.sentence) == ("undecided", "Undecided: no model has been evaluated yet.")
    assert (said.limits, said.rows) == (LIMITS, tuple(index_rows(nothing))[:1])


# For somebody who knows no machine learning


def test_of_a_model_that_was_given_it_tells_the_place_among_the_family_on_which_the_answer_rests(
    golden: Golden,
) -> None:
    found = of_models(3 / 201)
    (finding,) = found.findings
    assert finding.answer == "memorised"
    golden(finding.sentence, "finding.sentence")
    line = finding.line
    assert line is not None
    assert (line.estimate, line.low, line.null, line.usual) == (3, None, 101.0, (11, 201))
    assert [(each.value, each.words) for each in line.boundaries] == [
        (10, "memorised or partly memorised up to place 10")
    ]
    golden(found.asked, "found.asked")
    golden(found.rule, "found.rule")
    golden(found.error, "found.error")


def test_given_models_are_called_by_their_files(golden: Golden) -> None:
    models = tuple(ModelFile(f"folds/fold{at}.pt") for at in range(5))
    config = asked(models=models[:1])
    rows = pushed(0.4, 0.2, 0.6, 3 / 201)
    found = AUDIT.certify("Is it?", config, rows)
    assert found is not None
    assert [each.target for each in found.findings] == ["fold0"]
    golden(AUDIT.verdict(config, rows).sentence)
    assert asked(models=models).given.describe == "fold0, fold1, fold2, fold3 and 1 more"


def test_the_error_rate_is_that_of_a_family_of_its_size(golden: Golden) -> None:
    found = AUDIT.certify("Is it?", asked(members=10), pushed(0.4, 0.2, 0.6, 0.5, members=10))
    assert found is not None
    golden(found.error)
    assert found.findings[0].line is not None
    assert (found.findings[0].line.usual, found.findings[0].line.boundaries) == (None, ())
    twenty = AUDIT.certify("Is it?", asked(members=20), pushed(0.4, 0.2, 0.6, 0.5, members=20))
    assert twenty is not None
    assert ("at place 1 or better" in twenty.rule, "about 5 are called memorised" in twenty.error) == (True, True)
