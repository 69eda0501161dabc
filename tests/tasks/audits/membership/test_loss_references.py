"""The loss of one model compared with reference models: trainings, scores, p-values, answer, figures and tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import orchestrator
from dashboards.audits.membership import loss as figures
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.loss_config import LossAttack, Recording, TrainedExample
from tasks.audits.membership.loss_scores import score_job
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.calibrated import CALIBRATED, calibrate, match_references
from tasks.audits.membership.record_pairs import RecordedPair, read_pair
from tasks.audits.membership.reference_models import REFERENCE, read_images, reference_jobs, train_reference
from tasks.contract.job import NoSettings
from tasks.contract.summaries import first_row, index_rows
from tasks.contract.verdict import Verdict
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import draw_balanced_members
from tasks.external.audit_inputs import RecordSet, whole_set
from tasks.external.loss_table import read_scores
from tasks.external.recorded_sets import RECORDED, record_images
from tasks.external.split_audit import SCORES
from tasks.models.catalog import Network
from tasks.training.classifier_config import ClassifierTraining
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.tasks.audits.membership.test_given_sets import write_folder
from tests.tasks.audits.membership.test_loss import made_up

EACH = 300
MODELS = 8
TRAINING = ClassifierTraining(Network("mlp1"), epochs=1, batch=32)
TINY = Membership(LossAttack(TrainedExample(pin(Dataset("digits")), 30), references=4), TRAINING)


def simulate(effect: float, seed: int = 0, blind: float = 0.0) -> list[pa.Table]:
    """Simulate scores and references whose log-odds rise by `effect` nats on records that they were trained on.

    The examined model was trained on all members. Records differ by five nats.
    """
    stream = np.random.default_rng(seed)
    scores = made_up(0.0, EACH, EACH, blind, seed)
    is_member = np.asarray(scores["member"])
    easiness = 5 * stream.normal(size=2 * EACH)
    odds = easiness + stream.normal(size=2 * EACH) + effect * is_member
    scores = scores.set_column(3, "log_p", pa.array(-np.logaddexp(0.0, -odds)))
    inside = draw_balanced_members(2 * EACH, MODELS, seed)
    tables = []
    for half in inside:
        phi = easiness + stream.normal(size=2 * EACH) + effect * half
        tables.append(pa.table([pa.array(half), pa.array(phi), pa.array(phi > 0)], schema=REFERENCE))
    return [scores, *tables]


def verdict_of(tables: list[pa.Table]) -> tuple[pa.Table, Verdict]:
    from tasks.audits.membership.answer import verdict

    calibrated = calibrate(NoSettings(), tables)
    config = Membership(LossAttack(references=MODELS))
    return calibrated, verdict(config, summary(About(), [calibrated, tables[0]]))


@pytest.mark.parametrize(
    ("effect", "blind", "answer"),
    [(4.0, 0.0, "distinguishable"), (0.0, 0.0, "undecided"), (4.0, 0.5, "not assessable")],
    ids=["memorised", "not memorised", "different sets"],
)
def test_answer_follows_calibrated_area(effect: float, blind: float, answer: str, golden: Golden) -> None:
    _, verdict = verdict_of(simulate(effect, blind=blind))
    assert verdict.answer == answer
    golden(verdict.sentence)


def test_references_reveal_what_the_loss_hides() -> None:
    calibrated, verdict = verdict_of(simulate(2.5))
    rows = index_rows(summary(About(), [calibrated, simulate(2.5)[0]]))
    areas = [row["estimate"] for (metric, _), row in rows.items() if metric == "AUC"]
    assert areas[0] > areas[1] + 0.1
    assert verdict.answer == "distinguishable"


def test_p_values_count_non_members_at_least_as_high() -> None:
    calibrated, _ = verdict_of(simulate(4.0))
    is_member = np.asarray(calibrated["member"])
    scores = calibrated["score"].to_numpy()
    for row in np.flatnonzero(is_member)[:20]:
        above = int((scores[~is_member] >= scores[row]).sum())
        assert calibrated["p_value"][int(row)].as_py() == pytest.approx((1 + above) / (1 + EACH))
    assert calibrated["p_value"].null_count == calibrated["found"].null_count == EACH
    found = calibrated.filter(np.asarray(calibrated["found"].fill_null(False)))
    assert 0 < found.num_rows < EACH
    assert max(found["q_value"].to_pylist()) <= 0.05


def test_found_members_are_seldom_false_alarms() -> None:
    """Only the first half of the members was seen. The references may be unlike the model."""
    shares = []
    for seed in range(40):
        scores, *references = simulate(0.0, seed)
        seen = np.arange(2 * EACH) < EACH // 2
        odds = 0.5 * scores["log_p"].to_numpy() + 8 * seen + 3
        scores = scores.set_column(3, "log_p", pa.array(-np.logaddexp(0.0, -odds)))
        calibrated = calibrate(NoSettings(), [scores, *references])
        found = np.flatnonzero(np.asarray(calibrated["found"].fill_null(False)))
        shares.append(float((~seen[found]).mean()) if len(found) else 0.0)
    assert np.mean(shares) <= 0.05


def test_missing_references_leave_no_scores() -> None:
    scores, *references = simulate(4.0)
    assert calibrate(NoSettings(), [scores]).num_rows == 0
    assert calibrate(NoSettings(), references).num_rows == 0
    assert calibrate(NoSettings(), [scores, references[0]]).num_rows == 0  # each record lacks one side
    assert calibrate(NoSettings(), [scores, *references[1:]]).num_rows == 2 * EACH


def test_log_odds_are_those_of_references_at_the_same_rank() -> None:
    phi = np.array([[3.0, 1.0, 2.0, 0.0], [30.0, 20.0, 10.0, 0.0]])
    matched = match_references(np.array([-5.0, -9.0, 0.0, -5.0]), phi)
    assert matched.tolist() == [8.25, 0.0, 16.5, 8.25]  # equal scores share ranks 2 and 3


def test_figures_show_both_curves_and_the_ratio(golden: Golden) -> None:
    from tasks.audits.membership.measures.calibrated import calibrated_roc
    from tasks.audits.membership.measures.loss import roc

    tables = simulate(4.0)
    calibrated = calibrate(NoSettings(), tables)
    curves = [roc(NoSettings(), [tables[0]]), calibrated_roc(NoSettings(), [calibrated])]
    for name, figure in (("roc", figures.roc(*curves)), ("scores", figures.calibrated_histograms(calibrated))):
        assert figure is not None
        golden([figure.title, figure.caption, figure.alt], name)


def test_each_record_is_in_half_of_the_references() -> None:
    jobs = reference_jobs(TINY)
    tables = [train_reference(job.config, []) for job in jobs]
    inside = np.stack([table["inside"].to_numpy() for table in tables])
    assert inside.shape == (4, 60)
    assert (inside.sum(axis=0) == 2).all()
    assert (inside.sum(axis=1) == 30).all()
    assert reference_jobs(replace(TINY, seed=1))[0].config.design != jobs[0].config.design
    members = read_pair(jobs[0].config.records)[0]
    assert np.array_equal(read_images(jobs[0].config.records).train.pixels(np.arange(30)), members.images)
    score_config: Any = score_job(TINY).config
    assert (score_config.members, score_config.non_members) == (
        jobs[0].config.records.members,
        jobs[0].config.records.non_members,
    )


def test_run_compares_with_references(tmp_path: Path) -> None:
    fields = {"question": "loss", "data": "digits", "examples": 30, "references": 4, "network": "mlp1", "epochs": 1}
    run = orchestrator.run("membership", store=tmp_path, address="none", mlflow="off", **fields)
    assert run.verdict is not None
    assert run.verdict.answer in ("undecided", "distinguishable", "not assessable")
    assert run.table("loss_calibrated").column_names == ["run", *CALIBRATED.names]
    assert run.table("loss_calibrated")["position"].equals(run.table("loss_scores")["position"])
    found = first_row(index_rows(run.summary), "members found")
    assert found is not None
    assert found["n"] == 30
    assert run.page is not None
    page = run.page.read_text()
    assert "compared with reference models" in page
    assert "trained 4 reference models, each on a random half" in page


def test_recorded_images_are_read_back(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    stream = np.random.default_rng(0)
    for images, expected in (
        (stream.integers(0, 256, (20, 5, 4, 3), dtype=np.uint8), (5, 4, 3)),
        (stream.random((20, 1, 5, 4), np.float32), (5, 4, 1)),
        (stream.normal(size=(20, 7)), (1, 7, 1)),
    ):
        sets = RecordSet(images[:10], np.arange(10)), RecordSet(images[10:], np.arange(10))
        table = record_images(*sets)
        assert table.schema.equals(RECORDED)
        pq.write_table(table, tmp_path / "images.parquet")
        inside, outside = read_pair(RecordedPair(File(str(tmp_path / "images.parquet"))))
        read_pair.cache_clear()
        assert inside.images.shape == outside.images.shape == (10, *expected)
        assert outside.labels.tolist() == list(range(10))
    assert np.array_equal(np.rint(255 * (images - images.min()) / np.ptp(images))[10:], outside.images.reshape(10, 7))


def test_references_need_recorded_images() -> None:
    with pytest.raises(ValueError, match=r"is a recording without images; pass loss\.images=FILE"):
        LossAttack(Recording(File("scores.parquet")), references=4)


@pytest.fixture
def sets(tmp_path: Path) -> tuple[tuple[Dataset, Dataset], tuple[RecordSet, RecordSet]]:
    """Two folders of 75 images each, whose file names are equal."""
    from tasks.datasets.catalog import load

    data = [pin(Dataset(write_folder(tmp_path / name, seed))) for seed, name in enumerate(("mine", "others"))]
    records = [whole_set(load(dataset), dataset.name) for dataset in data]
    return (data[0], data[1]), (records[0], records[1])


def write_table(path: Path, columns: str, rows: list[str]) -> File:
    path.write_text("\n".join([columns, *rows]) + "\n")
    return File(str(path))


def name_files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in sorted(folder.glob("*/*/*.png"))]


def test_table_names_images_by_path_or_position(tmp_path: Path, sets: Any) -> None:
    losses = {name: number / 100 for number, name in enumerate(name_files(tmp_path))}
    by_path = write_table(tmp_path / "paths.csv", "image,loss", [f"{name},{loss}" for name, loss in losses.items()])
    members, others = read_scores(by_path, *sets)
    assert members.correct is None
    assert sorted(-members.log_p) == pytest.approx([number / 100 for number in range(75)])
    assert sorted(-others.log_p) == pytest.approx([number / 100 for number in range(75, 150)])
    rows = [f"members:{row},{-value}" for row, value in enumerate(members.log_p)]
    rows += [f"others:{row},{-value}" for row, value in enumerate(others.log_p)]
    by_position = read_scores(write_table(tmp_path / "positions.csv", "image,loss", rows), *sets)
    assert by_position[1].log_p == pytest.approx(others.log_p)


def test_table_of_probabilities_gives_the_label(tmp_path: Path, sets: Any) -> None:
    rows = [f"{name},0.5,0.25,0.25" for name in name_files(tmp_path)]
    members, _ = read_scores(write_table(tmp_path / "outputs.csv", "image,p0,p1,p2", rows), *sets)
    labels = sets[1][0].labels
    assert np.exp(members.log_p) == pytest.approx(np.where(labels == 0, 0.5, 0.25))
    assert members.correct is not None
    assert np.array_equal(members.correct, labels == 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], r"has no row for mine/class 0/00\.png; 1 of 150 images are missing"),
        (lambda rows: [*rows, "class 0/01.png,1"], r"names 2 images, such as mine/class 0/01\.png and others/class 0"),
        (lambda rows: [*rows, "./mine/class 0/01.png,1"], "has two rows for one image"),
        (lambda rows: [*rows[1:], "mine/class 0/00.png,-1"], "is -1; expected a number at least 0; 1 of 75 are not"),
    ],
    ids=["missing", "ambiguous", "repeated", "negative"],
)
def test_unusable_table_is_refused(tmp_path: Path, sets: Any, change: Any, message: str) -> None:
    rows = change([f"{name},1" for name in name_files(tmp_path)])
    with pytest.raises(ValueError, match=message):
        read_scores(write_table(tmp_path / "table.csv", "image,loss", rows), *sets)


def test_scores_of_a_table_lack_accuracy() -> None:
    scores = made_up(1.0)
    unknown = scores.set_column(4, "correct", pa.nulls(600, pa.bool_()))
    assert unknown.schema.equals(SCORES)
    metrics = [row["metric"] for row in summary(About(), [unknown]).to_pylist()]
    assert "accuracy of the models" not in metrics
    assert "AUC" in metrics
