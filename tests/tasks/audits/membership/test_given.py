"""A given model: ranks, answers on simulated models, and complete audits of a file and a table."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import orchestrator
from tasks.audits.membership.answer import RULES, certificate, effect, verdict
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.given import SCORES, Ask, ask_given, check_table, handout_order, pictures, question_about
from tasks.audits.membership.given_answer import LABELS_ALONE
from tasks.audits.membership.given_config import (
    AskedFile,
    FirstImages,
    GivenModel,
    ReturnedTable,
    Source,
    TableInterface,
)
from tasks.audits.membership.given_evidence import WIDER_DISTANCE
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.given import (
    BLIND,
    DIFFERING,
    DISTANCE,
    FOUND_GIVEN,
    KINSHIP,
    LEAD,
    MEASURES,
    POWER,
    RANKS,
    Ranking,
    differing_repeats,
    kinship,
    kinship_rows,
    lead_p_value,
    plan_kinship,
    plan_ranks,
    rank_distances,
    rank_p_values,
    rank_rows,
    ranks,
    ranks_among_others,
    scores_alike,
)
from tasks.audits.membership.trainings import ANSWERS, Answers, ask_models, trainings
from tasks.contract.job import Job
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Tables
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, alone, row
from tasks.contract.ties import tied_row
from tasks.contract.verdict import Verdict
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.external.model_file import ModelFile
from tasks.models.catalog import Network
from tasks.numerics import seeds
from tasks.numerics.statistics import proportion
from tasks.training.classifier_config import ClassifierTraining
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.tasks.audits.membership.made_up import make_given

FILE = AskedFile(ModelFile("model.pt"))
TABLE = ReturnedTable(File("outputs.csv"))
RECORDS = 200


def answer_for(source: Source, seed: int, models: int = 24, **settings: Any) -> Verdict:
    question = GivenModel(source, FirstImages(examples=RECORDS), models)
    tables = make_given(models, RECORDS, settings.pop("effect", 3.0), seed, **settings)
    ranking = Ranking(question.level, RECORDS)
    table = summary(About(question.level), [ranks(ranking, tables), kinship(ranking, tables)])
    return verdict(Membership(question), table)


@pytest.mark.parametrize("decimals", [9, 0, -9])
def test_ranks_count_lower_scores_of_other_models(decimals: int) -> None:
    stream = np.random.default_rng(2)
    scores = np.round(stream.normal(size=(7, 30)), decimals)
    outside = stream.random((7, 30)) < 0.6
    outside[:2] = True
    for model, ranked in enumerate(ranks_among_others(scores, outside)):
        others = outside & (np.arange(7) != model)[:, None]
        lower = ((scores < scores[model]) & others).sum(axis=0)
        equal = ((scores == scores[model]) & others).sum(axis=0)
        assert ranked.tolist() == ((lower + equal / 2) / others.sum(axis=0)).tolist()


def test_record_is_ranked_among_models_without_it() -> None:
    other_scores = np.array([[1.0, 1.0, 3.0], [2.0, 2.0, 3.0], [9.0, 2.0, 3.0]])
    without_record = np.array([[True, True, True], [True, True, False], [False, True, False]])
    assert rank_p_values(np.array([5.0, 2.0, 3.0]), other_scores, without_record).tolist() == [1 / 3, 3 / 4, 2 / 2]
    assert tuple(lead_p_value(lead, np.array([0.0, 0.1, 0.2])) for lead in (0.3, 0.15, -1.0)) == (1 / 4, 2 / 4, 4 / 4)


def test_distance_is_that_of_cramer_von_mises() -> None:
    from scipy import stats

    scores = np.random.default_rng(1).normal(size=(5, 40))
    distances = rank_distances(scores)
    ranks_of_given = (stats.rankdata(scores, axis=0) - 0.5) / 5
    assert distances == pytest.approx([stats.cramervonmises(row, "uniform").statistic for row in ranks_of_given])
    assert distances[::-1] == pytest.approx(rank_distances(scores[::-1]))


def test_only_models_trained_on_records_are_accused() -> None:
    assert [answer_for(FILE, seed, knows=0.5).answer for seed in range(4)] == ["memorised"] * 4
    innocent = [answer_for(FILE, seed).answer for seed in range(100, 120)]
    assert innocent.count("memorised") <= 4  # of 20 at 5 %: more with a chance of 1 in 390
    assert innocent.count("undecided") >= 12
    assert "not detected" not in innocent  # no single record of 200 could have been detected


def test_many_models_find_records_one_by_one() -> None:
    tables = make_given(120, RECORDS, 6.0, 5, knows=0.8)
    table = ranks(Ranking(0.05, RECORDS), tables)
    assert table["found"].to_numpy(zero_copy_only=False).mean() > 0.5
    assert min(table["p_value"].to_pylist()) == pytest.approx(1 / 61)


def test_missing_answers_prevent_a_judgement() -> None:
    tables = make_given(24, RECORDS, 3.0, 6, knows=0.5)
    for incomplete_tables in (tables[1:], tables[:-1]):
        measured_tables = []
        for measure in (ranks, kinship):
            measured_tables.append(measure(Ranking(0.05, RECORDS), incomplete_tables))
        assert measured_tables[1].num_rows == 0
        config = Membership(GivenModel(FILE, FirstImages(examples=RECORDS), 24))
        assert verdict(config, summary(About(0.05), measured_tables)).answer == "not assessable"


@pytest.mark.parametrize(
    "settings",
    [
        {"change": lambda phi, _: phi / 2},
        {"change": lambda phi, _: 2 * phi},
        {"change": lambda phi, _: phi + 2.0},
        {"change": lambda phi, stream: phi + stream.normal(0, 1, phi.shape), "repeats": 40},
    ],
    ids=["halved", "doubled", "surer", "noised"],
)
@pytest.mark.parametrize("knows", [0.0, 0.5])
def test_changed_scores_are_not_assessable(settings: dict[str, Any], knows: float) -> None:
    assert {answer_for(TABLE, seed, knows=knows, **settings).answer for seed in range(3)} == {"not assessable"}


def test_rounded_table_accuses_but_never_clears() -> None:
    rounded = {"kind": "confidence", "resolution": 0.01}
    assert answer_for(TABLE, 1, knows=0.5, **rounded).answer == "memorised"
    assert answer_for(TABLE, 2, **rounded).answer == "undecided"
    assert "a table can accuse a model" in answer_for(TABLE, 2, **rounded).limits


def test_innocent_models_of_other_records_are_similar() -> None:
    # The variance of their answers about the references is 1.8 times that of the references (40 trained models).
    answers = [answer_for(FILE, seed, apart=0.8).answer for seed in range(200, 220)]
    assert answers.count("not assessable") <= 4  # at most 5 %
    assert answers.count("memorised") <= 4


def test_distance_of_wider_scores_equals_simulation() -> None:
    from scipy import stats

    ranks_of_wider = stats.norm.cdf(np.sqrt(3) * np.random.default_rng(2).normal(size=100_000))
    assert stats.cramervonmises(ranks_of_wider, "uniform").statistic / 100_000 == pytest.approx(
        WIDER_DISTANCE, rel=0.02
    )


FARTHEST = 0.4 + RECORDS * WIDER_DISTANCE  # for a model that was trained on other records
LEADS = {"lead": 0.05, "distance": 0.051, "far": FARTHEST + 0.01, "low": 0.8, "differing": 0.01}


@pytest.mark.parametrize(
    ("source", "evidence", "answer"),
    [
        (FILE, {}, "memorised"),
        (
            TABLE,
            {},
            "memorised",
        ),
        (FILE, {"distance": 0.05}, "not assessable"),
        (FILE, {"distance": 0.05, "far": FARTHEST - 0.01}, "memorised"),
        (FILE, {"distance": None}, "not assessable"),
        (FILE, {"lead": None}, "not assessable"),
        (FILE, {"found": None}, "not assessable"),
        (TABLE, {"differing": 0.02}, "not assessable"),
        (TABLE, {"differing": None}, "memorised"),
        (FILE, {"lead": 0.051, "records": 1}, "not detected"),
        (FILE, {"lead": 0.051, "records": 2}, "undecided"),
        (FILE, {"lead": 0.051, "low": 0.79, "records": 1}, "undecided"),
        (FILE, {"lead": 0.051, "low": None}, "undecided"),
        (TABLE, {"lead": 0.051}, "undecided"),
    ],
)
def test_comparable_model_is_judged_by_its_lead(
    golden: Golden, source: Source, evidence: dict[str, float | None], answer: str
) -> None:
    config = Membership(GivenModel(source, FirstImages(examples=RECORDS), 40))
    numbers: dict[str, float | None] = LEADS | evidence
    score = "label" if source is TABLE else "log-odds"
    far = numbers["far"]
    records = int(numbers.get("records") or RECORDS)
    power = Estimate(20 / 24, numbers["low"], 0.95, 24)
    identified = Estimate(7.0, None, None, records)
    rows = [
        ("lead", row(LEAD, {}, Estimate(0.125, None, None, 24), "model", 0.0, numbers["lead"])),
        ("found", row(FOUND_GIVEN, {"score": score}, identified, "record", 0.0)),
        ("distance", row(DISTANCE, {}, Estimate(far, None, None, 24), "model", 0.4, numbers["distance"])),
        ("low", row(POWER, {}, power, "model")),
        ("differing", row(DIFFERING, {}, Estimate(numbers["differing"], None, None, 100), "picture")),
    ]
    measured_rows = []
    for name, summary_row in rows:
        if numbers.get(name, 0) is not None:
            measured_rows.append(summary_row)
    table = pa.Table.from_pylist(measured_rows, SUMMARY)
    answer_page = verdict(config, table)
    assert answer == answer_page.answer
    assert answer_page.sentence.startswith(f"{answer.capitalize()}: ")
    golden(answer_page.sentence)
    assert (source is TABLE and answer != "not assessable") == (LABELS_ALONE in answer_page.sentence)
    assert [summary_row["metric"] for summary_row in measured_rows] == [metric for metric, _ in answer_page.rows]
    assert ("a table can accuse" in answer_page.limits) == (source is TABLE)
    page = certificate(config, table, answer_page)
    first = effect(config).row(config, table)
    (finding,) = page.findings
    assert finding.answer == answer
    if answer == "not assessable":
        assert finding.line is None
    else:
        assert finding.line is not None
        assert finding.line.estimate == pytest.approx(12.5)
        assert finding.line.null == 0.0
    golden(finding.sentence, "finding.sentence")
    rule_key = f"test_comparable_model_is_judged_by_its_lead: rule of {score}"
    golden.compare("tasks/audits/membership/test_given.yaml", rule_key, page.rule)
    assert ("at least 80 % are identified" in page.rule) == (source is FILE)
    first_steps = {
        "memorised": "Treat",
        "not detected": "Keep",
        "not assessable": "Check your settings",
        "undecided": "Train at least",
    }
    assert page.steps[0].startswith(first_steps[answer])
    assert (None if numbers.get("found", 0) is None else 7.0) == (first and first["estimate"])


def test_summary_has_lead_distance_and_power() -> None:
    columns = [[True, False, False, False], [2.0, 1.0, 3.0, 2.5], [0.5, 0.1, 0.6, 0.2], [None, 0.0, 0.4, 0.1]]
    repeats: list[list[float | None]] = [[0.1, None, None, None], [20, 0, 0, 0]]
    table = pa.table([*columns, *repeats], schema=KINSHIP)
    # The given model's lead among the leads of the other models: 3 of 3, 1 of 3, 2 of 3.
    assert [
        row(LEAD, {}, alone(0.5, 1), "model", 0.0, 1 / 4),
        row(DISTANCE, {}, alone(2.0, 4), "training", 2.5, 3 / 4),
        row(POWER, {}, proportion(1, 3), "training"),
        row(DIFFERING, {}, proportion(2, 20), "picture", 0.0),
    ] == [*kinship_rows(Tables([table]), About(1 / 3))]
    assert proportion(0, 3).high == [*kinship_rows(Tables([table]), About(0.33))][2]["high"]
    without_repeats = table.set_column(5, KINSHIP.field(5), pa.array([0] * 4, pa.int64()))
    assert len([*kinship_rows(Tables([without_repeats]), About(0.05))]) == 3
    for inputs in ([], [KINSHIP.empty_table()]):
        assert [*kinship_rows(Tables(inputs), About(0.05))] == []
    names = [(measure.name, measure.schema) for measure in MEASURES]
    assert names == [("given_ranks", RANKS), ("given_kinship", KINSHIP), ("blind_control", BLIND)]


def answers_by_hand() -> list[pa.Table]:
    """The given model's scores of two records and two later images, and the answers of three other models.

    The later images are split into halves like the records; no model was trained on them.
    """
    scores = {"row": [0, 1, 2, 3], "record": [True, True, False, False], "score": [1.0, 0.5, 0.0, 1.0]}
    scores |= {"again": [1.0, None, None, 0.0], "kind": ["log-odds"] * 4, "resolution": [0.0] * 4, "right": [True] * 4}
    of_records = [([True, False], [1.0, 2.0]), ([False, True], [0.0, 0.5]), ([False, False], [1.0, 0.0])]
    of_later_images = []
    for odds in ([0.0, 2.0], [1.0, 0.0], [0.0, 0.5]):
        of_later_images.append(([True, False], odds))
    return [
        pa.table([scores[name] for name in SCORES.names], schema=SCORES),
        *(
            pa.table([[first, first + 1], member, odds, [False, False]], schema=ANSWERS)
            for first, answers_of_models in ((0, of_records), (2, of_later_images))
            for member, odds in answers_of_models
        ),
    ]


def test_lead_is_difference_of_mean_ranks() -> None:
    table = kinship(Ranking(0.05, 2), answers_by_hand())
    # Given model: ranks 1.5 / 2 and 1 / 2 of the records, 1 / 3 and 2 / 3 of the later images. The first other model,
    # trained on the first record: 1.5 / 2 and 1 / 1, then 0.5 / 2 and 2 / 2; the second: 0 / 1 and 1 / 2, 2 / 2 and
    # 0.
    assert pytest.approx(table["lead"].to_pylist()) == [0.625 - 0.5, 0.875 - 0.625, 0.25 - 0.5, 0.5 - 0.375]
    unseen_leads = table["unseen_lead"].to_pylist()
    assert unseen_leads[0] is None
    assert pytest.approx(unseen_leads[1:]) == [1.0 - 0.625, 0.0 - 0.5, 0.5 - 0.375]
    scores = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [0.0, 0.5]])
    assert rank_distances(scores).tolist() == table["distance"].to_pylist()
    assert table["given"].to_pylist() == [True, False, False, False]
    assert table["differing"].to_pylist() == [0.5, None, None, None]  # of two images that were handed out twice
    assert table["repeats"].to_pylist() == [2, 0, 0, 0]


def test_record_in_all_models_has_no_rank() -> None:
    scores, *answers = answers_by_hand()
    rank_table = ranks(Ranking(0.5, 2), [scores, *answers[1:3]])
    # Two models are without the first record, with answers 0 and 1; one is without the second, with answer 0.
    assert tuple(rank_table[name].to_pylist() for name in ("row", "score", "kind")) == (
        [0, 1],
        [1.0, 0.5],
        ["log-odds"] * 2,
    )
    assert tuple(rank_table[name].to_pylist() for name in ("models", "p_value")) == ([2, 1], [2 / 3, 1 / 2])
    assert tuple(rank_table[name].to_pylist() for name in ("q_value", "found")) == ([2 / 3, 2 / 3], [False, False])
    of_one_model = ranks(Ranking(0.5, 2), [scores, answers[1]])
    assert tuple(of_one_model[name].to_pylist() for name in ("models", "p_value")) == ([1, 0], [1 / 2, None])
    assert tuple(of_one_model[name].to_pylist() for name in ("q_value", "found")) == ([1 / 2, None], [True, None])
    without_models = ranks(Ranking(0.5, 2), [scores])
    assert tuple(without_models[name].to_pylist() for name in ("row", "models", "p_value")) == (
        [0, 1],
        [0, 0],
        [None, None],
    )


def test_found_records_have_smallest_p_value() -> None:
    columns = {"row": [0, 1, 2], "score": [0.0] * 3, "kind": ["label"] * 3, "models": [2, 2, 0]}
    columns |= {"p_value": [0.1, 0.02, None], "q_value": [0.1, 0.04, None], "found": [False, True, None]}
    columns["right"] = [True, False, False]
    table = pa.table([columns.get(name, columns["models"]) for name in RANKS.names], schema=RANKS)
    row_setting = {"level": 0.05, "score": "label"}
    assert [*rank_rows(Tables([table]), About(0.05, chance=0.1))] == [
        row(FOUND_GIVEN, row_setting, alone(1.0, 2), "record", 0.0, 0.04),
        tied_row(1.0, 3, "record", of="given model"),
        accuracy_row(proportion(1, 3), "records", 0.1, "record", model_name="given model"),
    ]
    without_models = next(rank_rows(Tables([table[2:]]), About(0.05)))
    assert without_models == row(FOUND_GIVEN, row_setting, alone(None), "record", 0.0)
    for inputs in ([], [RANKS.empty_table()]):
        assert [*rank_rows(Tables(inputs), About(0.05))] == []


def test_scores_are_compared_at_printed_precision() -> None:
    odds = np.array([[0.0, 3.0], [-1.0, 0.5]])
    answers = Answers(np.arange(2), np.zeros((2, 2), bool), odds, odds > 0)
    chances = 1 / (1 + np.exp(-odds))
    assert chances.round(2) == pytest.approx(scores_alike(answers, "confidence", 0.01))
    assert scores_alike(answers, "label", 0.0).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert odds.tolist() == scores_alike(answers, "log-odds", 0.0).tolist()


@pytest.mark.parametrize(
    ("difference", "resolution", "share"),
    [(0.01, 0.01, 0.0), (0.0101, 0.01, 0.5), (0.0024, 0.0, 0.0), (0.0026, 0.0, 0.5)],
)
def test_repeats_differ_beyond_printed_precision(difference: float, resolution: float, share: float) -> None:
    columns = {"row": [0, 1, 2], "record": [True] * 3, "score": [0.5] * 3, "again": [0.5, 0.5 + difference, None]}
    columns |= {"kind": ["confidence"] * 3, "resolution": [resolution] * 3, "right": [None] * 3}
    table = pa.table([columns[name] for name in SCORES.names], schema=SCORES)
    assert differing_repeats(table) == (share, 2)
    assert differing_repeats(table[2:]) == (None, 0)


def test_table_of_labels_compares_correctness(golden: Golden) -> None:
    answer = answer_for(TABLE, 3, knows=0.8, kind="label")
    assert answer.answer == "memorised"
    golden(answer.sentence)


def small(source: Source, models: int = 20, data: str = "digits", **records: Any) -> Membership:
    question = GivenModel(source, FirstImages(Dataset(data), 60, **records), models)
    return Membership(question, ClassifierTraining(Network("mlp1"), epochs=2, batch=16))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a network with random weights."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    path = tmp_path_factory.mktemp("model") / "model.pt"
    torch.jit.trace(network, torch.zeros(1, 1, 28, 28)).save(str(path))
    return path


def pinned_config(source: Source, models: int = 20, non_member_examples: int = 0) -> Membership:
    question = GivenModel(source, FirstImages(pin(Dataset("digits")), 60, non_member_examples), models)
    return replace(small(source), question=question)


def ask(source: Source, non_member_examples: int = 0) -> Ask:
    return question_about(pinned_config(source, non_member_examples=non_member_examples))


def test_given_model_scores_records_and_non_members() -> None:
    config = pinned_config(FILE, non_member_examples=7)
    question = question_about(config)
    data = load(config.data)
    assert Part(config.data, 0, 60) == question.records
    assert Part(config.data, 60, 7) == question.unseen
    assert Part(config.data, 60, 60) == ask(FILE).unseen
    assert seeds.derive(config.seed, "handed out") == question.seed  # the order does not reveal other random streams
    rows, images, labels = pictures(question)
    assert [*range(67)] == rows.tolist()
    assert (images == data.train_images[:67]).all()
    assert (labels == data.train_labels[:67]).all()
    handout = handout_order(question)
    assert len(handout.order) == 67 + round(0.1 * 67)
    assert len(handout.ids) == 67
    assert len({handout.name, *(handout_order(ask(FILE, controls)).name for controls in (0, 8))}) == 3
    assert handout.name == handout_order(question_about(config)).name
    with pytest.raises(ValueError, match="expected given to hand out images"):
        question_about(Membership(Halves(config.data)))


def call_tree(job: object) -> object:
    """Compute a job and its inputs."""
    if isinstance(job, Job):
        return (job.function, job.config, *map(call_tree, job.inputs))
    return job


def test_both_measures_read_records_and_non_members() -> None:
    config = pinned_config(FILE)
    question = question_about(config)
    training_jobs = trainings(config)
    jobs = (Job(ask_given, question), *training_jobs, *ask_models(config, question.unseen))
    ranking = Ranking(0.05, 60)
    for task, planned_job in (
        (ranks, plan_ranks(config, training_jobs)),
        (kinship, plan_kinship(config, training_jobs)),
    ):
        assert call_tree(Job(task, ranking, jobs)) == call_tree(planned_job)
    halves = Membership(Halves(config.data, 60))
    assert plan_ranks(halves, ()) == ()
    assert plan_kinship(halves, ()) == ()
    without_models = pinned_config(FILE, models=0)
    assert call_tree(plan_ranks(without_models, ())) == call_tree(Job(ranks, ranking, jobs[:1]))
    assert plan_kinship(without_models, ()) == ()


def test_table_is_read_by_image(tmp_path: Path) -> None:
    path = write_table(tmp_path / "labels.csv", "predicted")
    question = ask(TABLE)
    config = ask(ReturnedTable(File(str(path))))
    handout = handout_order(question)
    ids, (repeated_image, *_) = handout.ids, handout.repeats.items()
    lines = [line.split(",") for line in path.read_text().splitlines()]
    changed_ids = {ids[5], repeated_image[1]}  # another label for one image, and for the repeat of another image
    path.write_text(
        "\n".join(f"{name},{(int(label) + 1) % 10 if name in changed_ids else label}" for name, label in lines)
    )
    table = ask_given(config, ())
    assert [*range(120)] == table["row"].to_pylist()
    assert table["record"].to_pylist() == [True] * 60 + [False] * 60
    assert [row for row, right in enumerate(table["score"].to_pylist()) if right != 1.0] == [5]
    repeated_answers = {row: right for row, right in enumerate(table["again"].to_pylist()) if right is not None}
    assert {image: float(image != repeated_image[0]) for image in handout.repeats} == repeated_answers
    assert {"label"} == {*table["kind"].to_pylist()}
    assert {0.0} == {*table["resolution"].to_pylist()}
    # Confidences, the second time in a column that would be read as labels without its name in the settings.
    confidences = {name: 0.5 + 0.01 * (index % 7) for index, (name, _) in enumerate(lines[1:])}
    for column, columns in (("confidence", ()), ("predicted", ("predicted",))):
        path.write_text("\n".join([f"image,{column}", *(f"{name},{value:.2f}" for name, value in confidences.items())]))
        source = ReturnedTable(File(str(path)), columns, TableInterface("probabilities"))
        table = ask_given(replace(question, source=source), ())
        assert [confidences[name] for name in ids] == pytest.approx(table["score"].to_pylist())
        repeated_answers = {index: table["again"][index].as_py() for index in handout.repeats}
        assert {index: confidences[name] for index, name in handout.repeats.items()} == pytest.approx(repeated_answers)
        assert {"confidence"} == {*table["kind"].to_pylist()}
        assert {0.01} == {*table["resolution"].to_pylist()}


def test_file_gives_log_odds_of_true_labels(model: Path) -> None:
    question = ask(AskedFile(ModelFile(str(model))), non_member_examples=5)
    table = ask_given(question, ())
    _, images, labels = pictures(question)
    with torch.no_grad():
        p = torch.jit.load(str(model))(torch.tensor(images).permute(0, 3, 1, 2) / 255).double().softmax(1).numpy()
    confidence = p[np.arange(65), labels]
    assert np.log(confidence / (1 - confidence)) == pytest.approx(table["score"].to_numpy(), abs=1e-4)
    assert table["again"].to_pylist() == [None] * 65
    assert {"log-odds"} == {*table["kind"].to_pylist()}
    assert {0.0} == {*table["resolution"].to_pylist()}


def test_table_is_checked_before_training(tmp_path: Path) -> None:
    path = write_table(tmp_path / "labels.csv", "predicted")
    question = ask(ReturnedTable(File(str(path))))
    check_table(question)
    write_table(path, "predicted", last=10)
    with pytest.raises(ValueError, match=r"the number of a class, 0 to 9; got 10 for image .* \(1 of 132 are wrong\)"):
        check_table(question)
    path.unlink()
    check_table(question)  # stored results of the run remain readable


SMALL = {"data": "digits", "network": "mlp1", "examples": 60, "epochs": 2, "batch": 16}
RUN: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}


def write_table(path: Path, column: str, last: int | None = None) -> Path:
    """Write a table with the true label of each image, except the last one."""
    question = ask(TABLE)
    handout = handout_order(question)
    labels = [int(label) for label in pictures(question)[2]]
    rows = [[image, label] for image, label in zip(handout.ids, labels, strict=True)]
    rows += [[image, labels[number]] for number, image in handout.repeats.items()]
    rows[-1][1] = rows[-1][1] if last is None else last
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(chain([["image", column]], rows))
    return path


def test_model_without_references_is_not_assessable(golden: Golden, model: Path, tmp_path: Path) -> None:
    settings = {"given.model": str(model), "models": 0}
    run = orchestrator.run("membership", store=tmp_path, **SMALL, **RUN, **settings)
    assert run.verdict is not None
    golden(run.verdict.sentence, "verdict.sentence")
    config = small(AskedFile(ModelFile(str(model))), models=0)
    table = run.table("summary")
    page = certificate(config, table, verdict(config, table))
    assert RULES.explain(config) == page.rule
    golden(page.steps[1], "page.steps[1]")


def test_useless_table_and_few_models_are_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "labels.csv", "predicted", last=10)
    with pytest.raises(
        orchestrator.EngramError, match=r"the number of a class, 0 to 9; got 10 for image .* \(1 of 132 are wrong\)"
    ):
        orchestrator.plan("membership", store=tmp_path / "store", models=20, **SMALL, **{"given.outputs": str(table)})
    with pytest.raises(orchestrator.SpecError, match="smallest p-value is 1 of 17, above level"):
        orchestrator.plan("membership", store=tmp_path / "store", models=16, **SMALL, **{"given.outputs": str(table)})
    with pytest.raises(orchestrator.SpecError, match=r"expected given\.model=FILE"):
        orchestrator.plan("membership", store=tmp_path / "store", models=20, question="given", **SMALL)
    for settings in ({"given.outputs": str(table)}, {"is_null": True}):
        with pytest.raises(orchestrator.SpecError, match="Leave some as non-members"):
            orchestrator.plan("membership", store=tmp_path / "store", models=20, data="digits", **settings)


@pytest.mark.slow
def test_table_and_file_share_their_trainings(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "labels.csv", "predicted")
    common = {"store": tmp_path / "store", "models": 20, **SMALL, **RUN}
    first = orchestrator.run("membership", **common, **{"given.outputs": str(table)})
    plan = orchestrator.plan("membership", store=tmp_path / "store", models=20, **SMALL, **{"given.model": str(model)})
    assert plan["missing"] == 4  # the question, the two measures and the summary
    second = orchestrator.run("membership", **common, **{"given.model": str(model)})
    kinds = []
    for run in (first, second):
        kinds.append(set(run.table("given_ranks")["kind"].to_pylist()))
    assert kinds == [{"label"}, {"log-odds"}]
    assert first.verdict is not None
    assert second.verdict is not None
    assert second.verdict.answer == "not assessable"  # the model never learnt digits, unlike the models trained here
