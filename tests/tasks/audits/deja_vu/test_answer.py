"""The decision rules and the wording of answers about synthetic inferences and encoders."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tasks.audits.deja_vu import AUDIT
from tasks.audits.deja_vu.answer import (
    DRAWN_IMAGES,
    LIMITS,
    LIMITS_OF_GIVEN,
    NO_NEAR_COPIES,
    RULES,
    STATED_IMAGES,
    verdict,
)
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderTable, TrainedReferences
from tasks.audits.deja_vu.evidence import Evidence
from tasks.audits.deja_vu.measures import summary
from tasks.audits.deja_vu.measures.scores import BOTH, SCORE, Scoring, categories, scores
from tasks.audits.deja_vu.plain_words import OTHER_HELD_OUT, SAME_COMMAND
from tasks.audits.deja_vu.presets import QUICKSTART
from tasks.audits.deja_vu.sentences import describe_confidence, remarks
from tasks.contract.certificate import Certificate
from tasks.contract.job import NoSettings
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import name_of
from tasks.contract.ties import tied_row
from tasks.contract.verdict import Verdict
from tasks.worker.files import File
from tests.support.calibration import bounds
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu import simulated_encoders as simulated

CONFIG = with_settings(QUICKSTART, epochs=5, checkpoints=(), warmup=1, layers=(3,), k=(4,))
ABOUT = About(confident=20, layer=3, k=4, epoch=5)
SETTING = {"epoch": 5, "k": 4, "layer": 3, "percent": 20}
GIVEN = simulated.CONFIG
NULL = with_settings(CONFIG, training_sets="other")


def summary_of(inferences: pa.Table, resamples: int = 200, permutations: int = 199) -> pa.Table:
    tables = [scores(Scoring(20, resamples, permutations, 0), [inferences]), categories(NoSettings(), [inferences])]
    return summary(ABOUT, tables)


def verdict_of(inferences: pa.Table, config: DejaVu = CONFIG, resamples: int = 200, permutations: int = 199) -> Verdict:
    return verdict(config, summary_of(inferences, resamples, permutations))


def certificate_of(config: DejaVu, table: pa.Table) -> Certificate:
    page = AUDIT.certify("Does it?", config, table)
    assert page is not None
    return page


MEMORY = {"low": 0.05, "high": 0.15, "p_value": 0.001}
NO_MEMORY = {"low": -0.01, "high": 0.01, "p_value": 0.5}


@pytest.mark.parametrize(
    ("config", "score", "reference_p", "answer"),
    [
        (CONFIG, MEMORY, None, "memorised"),  # without a third-party encoder no reference is tested
        (CONFIG, MEMORY | {"p_value": 0.025}, None, "memorised"),
        (CONFIG, MEMORY | {"p_value": 0.0251}, None, "undecided"),
        (CONFIG, MEMORY | {"p_value": None}, None, "undecided"),
        (CONFIG, MEMORY | {"low": 0.0201}, None, "memorised"),
        (CONFIG, MEMORY | {"low": 0.02}, None, "undecided"),  # it may be negligible
        (
            CONFIG,
            MEMORY | {"low": 0.001, "high": 0.019},
            None,
            "below the relevant size",
        ),  # precedes not detected
        (CONFIG, NO_MEMORY | {"high": 0.0199}, None, "not detected"),
        (CONFIG, NO_MEMORY | {"high": 0.02}, None, "undecided"),
        (GIVEN, MEMORY, 0.0101, "memorised"),
        (GIVEN, MEMORY, 0.01, "not assessable"),  # precedes memorised
        (GIVEN, NO_MEMORY, 0.01, "not assessable"),  # precedes not detected
        (GIVEN, MEMORY, None, "not assessable"),
        (GIVEN, NO_MEMORY, 0.0101, "not detected"),
        (GIVEN, NO_MEMORY | {"high": 0.02}, 0.0101, "undecided"),
    ],
)
def test_first_matching_rule_decides(
    config: DejaVu, score: dict[str, Any], reference_p: float | None, answer: str
) -> None:
    evidence = Evidence((), score, {}, reference_p, None, negligible=0.02)
    assert answer == RULES.decide(config, evidence).answer


@pytest.mark.parametrize(
    ("score", "share", "answer"),
    [(NO_MEMORY, 0.051, "not assessable"), (NO_MEMORY, 0.05, "not detected"), (MEMORY, 0.9, "memorised")],
)
def test_equal_embeddings_clear_no_model(score: dict[str, Any], share: float, answer: str) -> None:
    evidence = Evidence((), score, {}, None, None, negligible=0.02, tied=tied_row(share, 100, "image"))
    assert RULES.decide(CONFIG, evidence).answer == answer


@pytest.mark.parametrize(
    ("config", "ending", "step"),
    [
        (CONFIG, "or was rounded.", "Check the encoder whose embeddings are equal"),
        (GIVEN, "or was rounded.", "Check the encoder whose embeddings are equal"),
        (NULL, "was trained on the evaluated images.", "Keep this page with"),
    ],
)
def test_tied_embeddings_come_with_advice(config: DejaVu, ending: str, step: str) -> None:
    if config is GIVEN:
        untied = simulated.summary_of(simulated.tables(0))
    else:
        untied = summary_of(made_up.simulate_inferences(2, 30, 0.2, 0.0))
    tied = tied_row(0.5, 100, "image", of="target")
    rows = [row for row in untied.to_pylist() if row["metric"] != tied["metric"]]
    table = pa.Table.from_pylist([*rows, tied], SUMMARY)
    answer = verdict(config, table)
    page = certificate_of(config, table)
    assert answer.answer == "not assessable"
    assert "However, 50 of 100 compared pairs of scores are equal" in answer.sentence
    assert answer.sentence.endswith(ending)
    assert answer.rows[0] == name_of(tied)
    assert page.steps[0].startswith(step)
    assert page.findings[0].line is None


def test_certificate_states_applicable_rules_and_errors(golden: Golden) -> None:
    trained_page = certificate_of(CONFIG, SUMMARY.empty_table())
    given_page = certificate_of(GIVEN, SUMMARY.empty_table())
    golden(trained_page.rule, "own.rule")
    golden(trained_page.other_errors, "own.other_errors")
    golden(trained_page.examined, "own.examined")
    golden(given_page.rule, "given.rule")
    golden(given_page.other_errors, "given.other_errors")
    golden(given_page.examined, "given.examined")


def test_unknown_score_is_undecided(golden: Golden) -> None:
    name = json.dumps(SETTING)
    rows = []
    for metric in (SCORE, "k"):
        rows.append(dict.fromkeys(SUMMARY.names) | {"metric": metric, "setting": name, "n": 0})
    answer = verdict(CONFIG, pa.Table.from_pylist(rows, SUMMARY))
    assert answer.answer == "undecided"
    assert answer.rows == ((SCORE, name),)
    golden(answer.sentence)


def test_confidence_of_all_images() -> None:
    assert describe_confidence(replace(CONFIG, confident_percent=100)) == "all images"
    assert describe_confidence(replace(CONFIG, confident_percent=99)) == "99 % most confident images"


def test_revealing_backgrounds_are_reported() -> None:
    for share, words in ((0.5, []), (0.505, ["A model that never saw the images names 50.5 % of the objects"])):
        evidence = Evidence((), NO_MEMORY, {("reference", BOTH): {"estimate": share}}, None, None, negligible=0.02)
        statements = list(remarks(CONFIG, evidence))
        assert len(words) == len(statements)
        assert all(statements[0].startswith(start) for start in words)


def test_search_lowers_score_and_keeps_probe_accuracy() -> None:
    objectives = AUDIT.objectives
    assert objectives is not None
    both_objectives = objectives.memorization, objectives.utility
    assert [(objective.name, objective.better) for objective in both_objectives] == [
        ("deja vu score", "lower"),
        ("probe accuracy", "higher"),
    ]
    assert objectives.allowance == 0.01
    probe = json.dumps({"epoch": 5, "layer": 3, "split": "validation"})
    names = ((SCORE, json.dumps(SETTING)), ("probe accuracy", probe))
    rows = []
    for metric, name in names:
        rows.append(dict.fromkeys(SUMMARY.names) | {"metric": metric, "setting": name})
    table = pa.Table.from_pylist(rows, SUMMARY)
    config = replace(CONFIG, layers=(3, 0))
    assert rows == [objective.row(config, table) for objective in both_objectives]


def test_memorised_pair_has_its_numbers(golden: Golden) -> None:
    table = summary_of(made_up.simulate_inferences(0, 200, 0.1, 0.4))
    answer = verdict(CONFIG, table)
    page = certificate_of(CONFIG, table)
    assert answer.answer == "memorised"
    golden(answer.sentence, "found.sentence")
    assert answer.rows == (("deja vu score", json.dumps(SETTING)),)
    assert answer.limits == LIMITS
    assert answer.conditions == (DRAWN_IMAGES, NO_NEAR_COPIES)
    (finding,) = page.findings
    assert finding.answer == "memorised"
    golden(finding.sentence, "finding.sentence")
    assert finding.line is not None
    assert [boundary.value for boundary in finding.line.boundaries] == [100 * CONFIG.negligible]


def test_many_images_without_memory_are_not_detected(golden: Golden) -> None:
    answer = verdict_of(made_up.simulate_inferences(1, 5000, 0.02, 0.0), replace(CONFIG, negligible=0.05))
    assert answer.answer == "not detected"
    golden(answer.sentence)


def test_few_images_are_undecided(golden: Golden) -> None:
    table = made_up.simulate_inferences(2, 30, 0.2, 0.0)
    answer = verdict_of(table)
    assert answer.answer == "undecided"
    golden(answer.sentence)


def test_verdict_reports_revealing_backgrounds(golden: Golden) -> None:
    answer = verdict_of(made_up.simulate_inferences(3, 100, 0.9, 0.0))
    assert answer.answer != "memorised"
    golden(answer.sentence)


def test_verdict_names_control_run_and_corner(golden: Golden) -> None:
    answer = verdict_of(
        made_up.simulate_inferences(4, 100, 0.1, 0.0), with_settings(CONFIG, training_sets="other", crop="corner")
    )
    golden(answer.sentence)


@pytest.mark.parametrize("config", [CONFIG, GIVEN])
def test_missing_scores_are_undecided(config: DejaVu) -> None:
    answer = verdict(config, SUMMARY.empty_table())
    assert answer.answer == "undecided"
    assert answer.rows == ()


@pytest.mark.parametrize("memory", [0.0, 0.4])
def test_certificate_of_control_run_requires_no_action(memory: float) -> None:
    for table in (summary_of(made_up.simulate_inferences(0, 200, 0.1, memory)), SUMMARY.empty_table()):
        page = certificate_of(NULL, table)
        (finding,) = page.findings
        start = "This is a control run: neither model was trained on the tested images. "
        assert finding.sentence.startswith(start)
        assert "that it was trained on" not in finding.sentence
        first = "Keep this page with"
        if finding.answer == "memorised":
            first = "This is a false alarm"
        assert page.steps[0].startswith(first)
        assert "run the actual audit (`training_sets=own`)." in page.steps[-1]
        assert (finding.line is None) == (table.num_rows == 0)


def test_memorised_encoder_has_its_numbers(golden: Golden) -> None:
    table = simulated.summary_of(simulated.tables(0, "ABB", memory=0.5))
    answer, page, (score, *_) = verdict(GIVEN, table), certificate_of(GIVEN, table), table.to_pylist()
    assert answer.answer == "memorised"
    golden(answer.sentence, "found.sentence")
    assert answer.limits == LIMITS_OF_GIVEN
    assert [condition.status for condition in answer.conditions] == [STATED_IMAGES.status, "confirmed"]
    assert (name_of(score),) == answer.rows  # the test of the reference is named only if it prevents a conclusion
    trained_references = replace(GIVEN, encoders=replace(simulated.GIVEN, comparison=TrainedReferences()))
    golden(verdict(trained_references, table).sentence, "sentence")
    (finding,) = page.findings
    golden(finding.sentence, "finding.sentence")
    assert finding.line is not None
    golden(finding.line.what, "finding.line.what")


def test_sets_that_reference_distinguishes_are_not_assessable(golden: Golden) -> None:
    table = simulated.summary_of(simulated.unlike_tables())
    answer = verdict(GIVEN, table)
    page = certificate_of(GIVEN, table)
    assert answer.answer == "not assessable"
    golden(answer.sentence)
    assert json.dumps({"model": "reference", "percent": 20}) == answer.rows[1][1]
    (finding,) = page.findings
    assert finding.answer == "not assessable"
    assert finding.line is None
    golden(finding.sentence, "finding.sentence")
    assert page.steps == OTHER_HELD_OUT


RETURNED_TABLE = replace(GIVEN, encoders=replace(simulated.GIVEN, encoder=EncoderTable(File("sent.parquet"))))


@pytest.mark.parametrize(
    ("score", "differing", "answer"),
    [
        (NO_MEMORY, 0, "not detected"),
        (NO_MEMORY, 5, "not detected"),
        (NO_MEMORY, 6, "not assessable"),
        (NO_MEMORY | {"high": 0.3}, 100, "not assessable"),  # precedes undecided
        (NO_MEMORY, None, "not assessable"),
        (MEMORY, 100, "memorised"),  # hiding cannot imitate memorisation
        (MEMORY, None, "memorised"),
    ],
)
def test_returned_table_clears_only_if_repeats_agree(score: dict[str, Any], differing: int | None, answer: str) -> None:
    repeats = None if differing is None else {"estimate": differing / 100, "n": 100}
    evidence = Evidence((), score, {}, 0.5, None, 0.02, repeats)
    assert answer == RULES.decide(RETURNED_TABLE, evidence).answer
    if answer == "not detected":
        assert answer == RULES.decide(GIVEN, replace(evidence, repeats=None)).answer  # a file is evaluated here


def test_table_without_repeats_is_not_assessable(golden: Golden) -> None:
    table = simulated.summary_of(simulated.tables(0))
    answer = verdict(RETURNED_TABLE, table)
    page = certificate_of(RETURNED_TABLE, table)
    reason = "No whole images were repeated among the crops"
    assert answer.answer == "not assessable"
    assert all(reason in sentence for sentence in (answer.sentence, page.findings[0].sentence))
    golden(answer.limits, "found.limits")
    golden(page.steps[0])
    assert "Crops are recognisable" not in verdict(GIVEN, table).limits


def test_untested_reference_is_not_assessable() -> None:
    """The table of gains is absent if its job failed and the run tolerates that."""
    table = simulated.summary_of(simulated.tables(0, memory=0.5))
    table = table.filter(pc.field("metric") != "accuracy gain")
    answer = verdict(GIVEN, table)
    page = certificate_of(GIVEN, table)
    assert answer.answer == "not assessable"
    assert len(answer.rows) == 1
    assert answer.sentence.endswith("so they may have been drawn in different ways.")
    assert page.findings[0].sentence.endswith("so they may differ.")
    assert page.steps == SAME_COMMAND


@pytest.mark.slow
def test_false_alarms_and_coverage_of_innocent_pairs() -> None:
    answers = Counter[str]()
    covered = 0
    for seed in range(200):
        table = summary_of(made_up.simulate_inferences(seed, 100, 0.15, 0.0), resamples=100)
        answers[verdict(CONFIG, table).answer] += 1
        score = table.to_pylist()[0]
        covered += score["low"] <= 0 <= score["high"]
    assert answers["memorised"] <= bounds(0.025, 200)[1], answers
    assert covered >= 180


@pytest.mark.slow
def test_memory_of_a_fifth_is_detected() -> None:
    answers = Counter(
        verdict_of(made_up.simulate_inferences(seed, 200, 0.1, 0.2), resamples=60).answer for seed in range(20)
    )
    assert answers["memorised"] >= 18, answers


@pytest.mark.slow
def test_false_alarms_of_innocent_encoders() -> None:
    # docs/deja_vu_reference.md reports 400 of each kind.
    answers = simulated.count_answers(60, revealing_shares=(0.05, 0.05))
    assert answers["memorised"] <= bounds(0.025, 60)[1]
    assert answers["not assessable"] <= bounds(0.01, 60)[1]


@pytest.mark.slow
def test_memorising_encoders_are_detected_unless_noise_hides() -> None:
    assert simulated.count_answers(10, revealing_shares=(0.05, 0.05), memory=0.4)["memorised"] >= 9
    assert simulated.count_answers(10, revealing_shares=(0.05, 0.05), memory=0.2, noise=1.0)["memorised"] <= 1
