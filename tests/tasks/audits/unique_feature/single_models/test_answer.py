"""Answers of single models: the deciding rank, sentences and limits."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.measures.exact_ranks import REFERENCE_PART_RANK, REFERENCE_RANK
from tasks.audits.unique_feature.measures.family import FOUND, OTHERS, PUSH, RANK, UPPER
from tasks.audits.unique_feature.population import GLYPHS, LEVEL, Population
from tasks.audits.unique_feature.single_models.answer import ANSWERING, thresholds
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
    GUESSED,
    LIMITS,
    NAMED_FEATURE,
    PARTLY,
    REFERENCE_LIMITS,
    RESEMBLANCE,
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


def config_for(feature: Feature = NAMES, members: int = 201, **given_settings: Any) -> UniqueFeature:
    settings = {"given.shape": (64, 64, 1), "given.family.count": members - 1}
    return configure(settings | {f"given.{name}": value for name, value in given_settings.items()}, feature=feature)


def panel_verdict(summary: pa.Table) -> Verdict:
    return verdict(config_for(Glyph()), summary)


def certificate_of(p_value: float, feature: Feature = NAMES) -> Certificate:
    page = AUDIT.certify("Is it?", config_for(feature), push_table(0.4, 0.2, 0.6, p_value))
    assert page is not None
    return page


def push_table(
    estimate: float | None,
    low: float,
    high: float,
    p_value: float,
    n: int = 1,
    is_label_known: bool = True,
    power: float = 0.8,
    members: int = 201,
    parts: tuple[float, ...] = (1 / 101, 5 / 101),
) -> pa.Table:
    setting = json.dumps({"label": 3, "label known": is_label_known})
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


def test_guessable_order_is_reported() -> None:
    returned_table = config_for(Glyph(), outputs=(File("o.csv"),))
    secret = with_settings(returned_table, {"given.secret": "s" * 16})
    table = push_table(0.4, 0.2, 0.6, 0.5, n=2)
    assert GUESSED not in verdict(config_for(Glyph()), table).limits
    assert GUESSED not in verdict(secret, table).limits
    assert GUESSED in verdict(returned_table, table).limits
    sentences = []
    for n in (2, 1):
        sentences.append(panel_verdict(push_table(0.4, 0.2, 0.6, 0.5, n=n)).sentence)
    assert ["2 models together rank" in sentence for sentence in sentences] == [True, False]


SMALL = replace(CLEAR.rank, p=LEVEL)
LARGE = replace(CLEAR.rank, p=LEVEL + 1e-9)
DISTINCT_PARTS: dict[str, Any] = {"parts": (SMALL, SMALL)}
TWO = (ModelFile("a.pt"), ModelFile("b.pt"))
MODEL_FILE = config_for(models=(ModelFile("model.pt"),))
REFERENCE = config_for(models=(ModelFile("model.pt"),), references=TWO, label=3)
TABLE = config_for(outputs=(File("o.csv"),))
LAYER = with_settings(MODEL_FILE, {"judged_by": "first_layer", "given.label": 3})


@pytest.mark.parametrize(
    ("config", "changes", "answer"),
    [
        (MODEL_FILE, {}, "not detected"),
        (MODEL_FILE, {"rank": LARGE}, "not detected"),
        (MODEL_FILE, {"rank": SMALL} | DISTINCT_PARTS, "memorised"),
        (MODEL_FILE, {"rank": SMALL}, PARTLY),  # no part distinguishes it from its look-alikes
        (MODEL_FILE, {"rank": SMALL, "parts": (SMALL, LARGE)}, PARTLY),
        (MODEL_FILE, {"rank": SMALL, "parts": (LARGE, SMALL)}, PARTLY),
        (MODEL_FILE, DISTINCT_PARTS, "not detected"),  # look-alikes alone never accuse
        (MODEL_FILE, {"tied": tied_row(0.051, 1, "model")}, "not assessable"),
        (MODEL_FILE, {"tied": tied_row(0.051, 1, "model"), "rank": SMALL} | DISTINCT_PARTS, "memorised"),
        (REFERENCE, {"tied": tied_row(0.051, 1, "model"), "overriding_rank": LARGE}, "not assessable"),
        (MODEL_FILE, {"tied": tied_row(0.05, 1, "model")}, "not detected"),
        (MODEL_FILE, {"push": replace(CLEAR.push, upper=SMALLEST)}, "undecided"),
        (MODEL_FILE, {"push": replace(CLEAR.push, upper=None)}, "undecided"),
        (MODEL_FILE, {"push": replace(CLEAR.push, power=0.7999)}, "undecided"),
        (REFERENCE, {"overriding_rank": LARGE}, "not detected"),
        (REFERENCE, {"overriding_rank": SMALL} | DISTINCT_PARTS, "memorised"),  # regardless of its rank in the family
        (REFERENCE, {"overriding_rank": SMALL, "parts": (SMALL, LARGE)}, PARTLY),
        (REFERENCE, {"overriding_rank": LARGE, "rank": SMALL} | DISTINCT_PARTS, "undecided"),
        (REFERENCE, {"lacks_overriding_rank": True}, "undecided"),
        (REFERENCE, {"lacks_overriding_rank": True, "rank": SMALL} | DISTINCT_PARTS, "undecided"),
        (MODEL_FILE, {"overriding_rank": SMALL, "rank": LARGE} | DISTINCT_PARTS, PARTLY),  # a rule for references only
        (LAYER, {"overriding_rank": LARGE}, "not detected"),
        (LAYER, {"overriding_rank": SMALL} | DISTINCT_PARTS, "memorised"),
        (LAYER, {"overriding_rank": SMALL, "parts": (LARGE, SMALL)}, PARTLY),
        (LAYER, {"rank": SMALL} | DISTINCT_PARTS, PARTLY),  # without the rank by weights, no rank accuses
        (TABLE, {"checks": (TableCheck(1, 40, 0),)}, "not detected"),
        (TABLE, {"checks": (TableCheck(1, 40, 1),)}, "not assessable"),
        (TABLE, {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, 0.01),)}, "not detected"),
        (TABLE, {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, 0.0099),)}, "not assessable"),
        (TABLE, {"unchecked": 1}, "not assessable"),
        (
            TABLE,
            {"unchecked": 1, "rank": SMALL} | DISTINCT_PARTS,
            "memorised",
        ),  # altered tables cannot accuse a model that never saw the feature
    ],
)
def test_first_matching_rule_decides(config: UniqueFeature, changes: dict[str, Any], answer: str) -> None:
    assert judge(ANSWERING, config, replace(CLEAR, **changes))[0].answer == answer


def summary_row(
    metric: str, estimate: float | None, n: int, p_value: float | None = None, **setting: Any
) -> dict[str, Any]:
    about = {"metric": metric, "setting": json.dumps(setting), "estimate": estimate, "n": n, "p_value": p_value}
    return dict.fromkeys(SUMMARY.names) | about


def test_evidence_is_read_from_the_summary() -> None:
    config = config_for(outputs=(File("o.csv"), File("p.csv"), File("q.csv")), references=TWO, label=3)
    rows = [
        *(row for row in push_table(0.4, 0.2, 0.6, 0.01, n=3).to_pylist() if row["metric"] != FOUND),
        summary_row(FOUND, 0.7, 3, nats=0.05),
        summary_row(REFERENCE_RANK, 70.4, 3, 0.07, references=2)
        | {"setting": json.dumps({"references": 2, GLYPHS: 1000})},
        summary_row(REFERENCE_PART_RANK, 4.0, 3, 0.04, part=1, parts=1, others=99, references=2),
        tied_row(0.25, 3, "model"),
        summary_row(TWICE, 0.051, 40, table=1, key="abc"),
        summary_row(LABELS, 0.9, 20, 0.3, table=1) | {"null": 0.95},
        summary_row(TWICE, None, 30, table=2, key="later"),
    ]
    settings = {row["metric"]: row["setting"] for row in rows}
    assert PanelEvidence(
        names=tuple((metric, settings[metric]) for metric in (REFERENCE_RANK, RANK, PUSH, OTHERS)),
        rank=Rank(2, 0.01, Population(201), 3),
        overriding_rank=Rank(70, 0.07, Population(1000, True), 3, 2),
        parts=(Rank(4, 0.04, Population(100), 3, 2),),
        push=Push(0.4, None, (0.2, 0.375), 0.6, 0.05, 0.7),
        tied=tied_row(0.25, 3, "model"),
        checks=(TableCheck(1, 40, 2, 20, 18, 0.95, 0.3), TableCheck(2, 30, 0)),
        unchecked=1,
        key="abc",
        lacks_overriding_rank=False,
    ) == read_panel_evidence(config, index_rows(pa.Table.from_pylist(rows, SUMMARY)))


def test_missing_rows_are_not_invented() -> None:
    rows = push_table(0.4, 0.2, 0.6, 0.01, is_label_known=False).to_pylist()
    remaining_rows = []
    for row in rows:
        remaining_rows.append(row | {"low": None} if row["metric"] == OTHERS else row)
    remaining_rows = [row for row in remaining_rows if row["metric"] not in (UPPER, FOUND)]
    evidence = read_panel_evidence(MODEL_FILE, index_rows(pa.Table.from_pylist(remaining_rows, SUMMARY)))
    assert evidence is not None
    assert Push(0.4, 3, None, None, SMALLEST, 0.0) == evidence.push
    assert (evidence.overriding_rank, evidence.lacks_overriding_rank, evidence.tied) == (None, False, None)
    assert evidence.checks == ()
    assert evidence.unchecked == 0
    assert evidence.key == ""
    with_check = pa.Table.from_pylist([*rows, summary_row(TWICE, 0.0, 9, table=1, key="a")], SUMMARY)
    checked = read_panel_evidence(MODEL_FILE, index_rows(with_check))
    assert checked is not None
    (check,) = checked.checks
    assert checked.unchecked == 0
    assert check.labelled == 0
    assert check.right == 0
    assert check.stated is None
    assert check.p is None
    assert [Rank(1, 1 / 101, Population(101), 1), Rank(5, 5 / 101, Population(101), 1)] == [*evidence.parts]
    lacks = read_panel_evidence(LAYER, index_rows(pa.Table.from_pylist(rows, SUMMARY)))
    assert lacks is not None
    assert (lacks.overriding_rank, lacks.lacks_overriding_rank, lacks.parts) == (None, True, ())
    rows.append(summary_row(BY_WEIGHTS, 9.0, 1, 0.09, others=99))
    weighed = read_panel_evidence(LAYER, index_rows(pa.Table.from_pylist(rows, SUMMARY)))
    assert weighed is not None
    assert (Rank(9, 0.09, Population(100), 1), False) == (weighed.overriding_rank, weighed.lacks_overriding_rank)
    for metric in (RANK, PUSH, OTHERS):
        fewer_rows = [row for row in rows if row["metric"] != metric]
        assert read_panel_evidence(MODEL_FILE, index_rows(pa.Table.from_pylist(fewer_rows, SUMMARY))) is None


def test_evidence_with_a_small_rank_is_not_clear() -> None:
    ranks = [{}, {"rank": SMALL}, {"overriding_rank": SMALL}, {"overriding_rank": LARGE}]
    assert [replace(CLEAR, **rank_changes).is_clear for rank_changes in ranks] == [True, False, False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, 0.01),)},
        {"checks": (TableCheck(1, 40, 0, 20, 9, None, 0.001),)},
        {"checks": (TableCheck(1, 40, 0, 20, 9, 0.9, None),)},
        {"checks": (TableCheck(1, 40, 1), TableCheck(2, 40, 0, 20, 9, 0.9, 0.0012)), "unchecked": 1},
    ],
)
def test_inconsistent_table_is_doubted(golden: Golden, changes: dict[str, Any]) -> None:
    golden(replace(CLEAR, **changes).describe_doubts())


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (MODEL_FILE, {}),
        (MODEL_FILE, DISTINCT_PARTS),
        (MODEL_FILE, {"push": Push(-0.3, 4, None, None, 0.1, 0.8)}),
        (MODEL_FILE, {"push": replace(CLEAR.push, upper=0.25)}),
        (MODEL_FILE, {"push": replace(CLEAR.push, power=0.79)}),
        (MODEL_FILE, {"tied": tied_row(0.5, 1, "model")}),
        (REFERENCE, {"lacks_overriding_rank": True}),
        (REFERENCE, {"overriding_rank": Rank(70, 0.07, Population(1000, True), 1, 2), "rank": SMALL}),
        (REFERENCE, {"overriding_rank": Rank(7, 0.05, Population(100), 1, 2)} | DISTINCT_PARTS),
        (LAYER, {"overriding_rank": Rank(70, 0.07, Population(100), 1)}),
        (TABLE, {"unchecked": 1}),
    ],
)  # fmt: skip
def test_sentence_ends_with_the_reason(golden: Golden, config: UniqueFeature, changes: dict[str, Any]) -> None:
    evidence = replace(CLEAR, **changes)
    answer, _page = judge(ANSWERING, config, evidence)
    golden(answer.sentence)
    assert [LIMITS in answer.limits, REFERENCE_LIMITS in answer.limits, WEIGHT_LIMITS in answer.limits] == [
        True,
        evidence.overriding_rank is not None and config is REFERENCE,
        evidence.overriding_rank is not None and config is LAYER,
    ]


def test_rules_state_places_and_rates_of_their_population() -> None:
    small_family = config_for(Glyph(), members=10)
    with_references = replace(
        small_family, question=replace(REFERENCE.question, shape=(28, 28, 1), family=small_family.family)
    )
    names = ("place", "called", "overriding_place", "overriding_called", "called_at_all")
    without_references = [
        "at a place that a family of this size does not have",
        "0",
        "at place 222,870 or better",
        "5",
        "0",
    ]
    assert [thresholds(small_family)[name] for name in names] == without_references
    assert [thresholds(with_references)[name] for name in names] == [*without_references[:-1], "5"]
    (place_phrase, call_rate, *_, at_all) = (thresholds(config_for(members=31))[name] for name in names)
    assert place_phrase == "at place 1 or better"
    assert call_rate == "3.2"
    assert at_all == "3.2"


def test_handed_out_key_is_reported() -> None:
    key_sentence = "The SHA-256 of the key of the images that were handed out begins with abc."
    limits = [judge(ANSWERING, TABLE, replace(CLEAR, key=key))[0].limits for key in ("", "abc")]
    assert [key_sentence in limits_of_key for limits_of_key in limits] == [False, True]


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
def test_rank_decides_for_a_single_model(golden: Golden, low: float, high: float, p_value: float, answer: str) -> None:
    outcome = panel_verdict(push_table(0.4, low, high, p_value))
    assert answer == outcome.answer
    place_phrase = f"at place {201 * p_value:.0f} of 201 in its family (p = {p_value:.2g})"
    assert outcome.sentence.startswith(f"{answer.capitalize()}: the model ranks the letter A {place_phrase}")
    golden(outcome.sentence)
    assert outcome.rows[0] == (RANK, "{}")
    assert outcome.limits == f"{LIMITS} {config_for(Glyph()).describe_draw()}"
    assert outcome.conditions == ((RESEMBLANCE,) if answer == "memorised" else ())
    assert [metric for metric, _ in outcome.rows] == [RANK, PUSH, OTHERS]


def test_limits_name_who_chose_the_feature() -> None:
    glyph = config_for(Glyph(kind="random"))
    bound = {"given.secret": "s" * 16, "given.nonce": "n" * 16, "given.commitment": "ab" * 32}
    drawn_config = with_settings(glyph, bound)
    named_config = with_settings(config_for(Glyph()), bound)
    summary = push_table(0.4, 0.2, 0.6, 0.01)
    limits = [verdict(config, summary).limits for config in (drawn_config, named_config)]
    assert all(
        f"commitment {'ab' * 32} and the nonce {'n' * 16} of the other party" in limits_of_config
        for limits_of_config in limits
    )
    assert [
        "The choice of the feature and of those that it is compared with is bound" in limits_of_config
        for limits_of_config in limits
    ] == [
        True,
        False,
    ]
    assert [NAMED_FEATURE in limits_of_config for limits_of_config in limits] == [False, True]
    assert drawn_config.asked_feature == Glyph(kind="random", seed=drawn_config.derive_seed("glyph"))


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (0.5, 1 / 101),
        (0.5, 0.5),
    ],
)
def test_feature_like_its_look_alikes_is_partly_memorised(golden: Golden, parts: tuple[float, ...]) -> None:
    rows = push_table(0.4, 0.2, 0.6, 0.01, parts=parts)
    answer = panel_verdict(rows)
    assert answer.answer == PARTLY
    golden(answer.sentence)
    page = AUDIT.certify("Is it?", config_for(), rows)
    assert page is not None
    golden(page.findings[0].sentence)
    assert "family.look_alikes=100" in page.steps[0]


def test_first_push_of_a_summary_decides() -> None:
    rows = [push_table(0.4, 0.2, 0.6, 0.01), push_table(None, 0.0, 0.0, 1.0)]
    assert panel_verdict(pa.concat_tables(rows)).answer == "memorised"
    assert panel_verdict(pa.concat_tables(rows[::-1])).answer == "undecided"


def test_number_of_models_and_label_are_reported(golden: Golden) -> None:
    golden(panel_verdict(push_table(0.4, 0.2, 0.6, 0.01, n=2)).sentence, "sentence")
    golden(panel_verdict(push_table(0.4, 0.2, 0.6, 0.01)).sentence, "sentence")
    golden(panel_verdict(push_table(0.4, 0.2, 0.6, 0.01, is_label_known=False)).sentence, "sentence")


@pytest.mark.parametrize("empty_table", [SUMMARY.empty_table(), push_table(None, 0.0, 0.0, 1.0)])
def test_missing_models_decide_nothing(empty_table: pa.Table) -> None:
    answer = panel_verdict(empty_table)
    assert answer.answer == "undecided"
    assert answer.sentence == "Undecided: no model has been evaluated yet."
    assert answer.limits == LIMITS
    assert answer.rows == tuple(index_rows(empty_table))[:1]


# For readers without a machine-learning background


def test_finding_states_the_deciding_place(
    golden: Golden,
) -> None:
    page = certificate_of(3 / 201)
    (finding,) = page.findings
    assert finding.answer == "memorised"
    golden(finding.sentence, "finding.sentence")
    line = finding.line
    assert line is not None
    assert line.estimate == 3
    assert line.low is None
    assert line.null == 101.0
    assert line.usual == (11, 201)
    assert [(boundary.value, boundary.words) for boundary in line.boundaries] == [
        (10, "up to place 10: memorised, or partly memorised (this feature or one that shares a part with it)")
    ]
    golden(page.asked, "found.asked")
    golden(page.rule, "found.rule")
    golden(page.error, "found.error")
    golden(page.other_errors, "found.other_errors")
    golden(page.examined, "found.examined")


def test_given_models_are_named_by_their_files(golden: Golden) -> None:
    models = tuple(ModelFile(f"folds/fold{number}.pt") for number in range(5))
    config = config_for(models=models[:1])
    rows = push_table(0.4, 0.2, 0.6, 3 / 201)
    page = AUDIT.certify("Is it?", config, rows)
    assert page is not None
    assert [finding.target for finding in page.findings] == ["fold0"]
    golden(AUDIT.verdict(config, rows).sentence)
    assert config_for(models=models).given.describe == "fold0, fold1, fold2, fold3 and 1 more"


def test_error_rate_is_that_of_the_family_size(golden: Golden) -> None:
    page = AUDIT.certify("Is it?", config_for(members=10), push_table(0.4, 0.2, 0.6, 0.5, members=10))
    assert page is not None
    golden(page.error)
    assert page.findings[0].line is not None
    assert page.findings[0].line.usual is None
    assert page.findings[0].line.boundaries == ()
    twenty = AUDIT.certify("Is it?", config_for(members=20), push_table(0.4, 0.2, 0.6, 0.5, members=20))
    assert twenty is not None
    assert ("at place 1 or better" in twenty.rule, "about 5 are called memorised" in twenty.other_errors) == (
        True,
        True,
    )
