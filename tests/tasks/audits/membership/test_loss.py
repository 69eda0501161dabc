"""The loss of one model: from a file, a recording or an example to scores, a curve and an answer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from dashboards.audits.membership import loss as figures
from tasks.audits.membership.config import Membership
from tasks.audits.membership.loss_answer import is_control_run, list_conditions
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, Recording, TrainedExample
from tasks.audits.membership.loss_evidence import LossEvidence
from tasks.audits.membership.loss_scores import ScoredFile, read_recording, score_file, score_job
from tasks.audits.membership.measures.loss import ROC, exposures, roc
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.external.model_file import pin as pin_model
from tasks.external.split_audit import CLASSIFIERS, SCORES
from tasks.numerics import seeds
from tasks.numerics.ranks import area_under_curve
from tasks.worker.files import File, FileError
from tests.support.golden import Golden
from tests.support.split_audits import verdict_of
from tests.tasks.audits.membership.test_given_sets import write_folder


def made_up(lead: float, members: int = 300, non_members: int = 300, blind: float = 0.0, seed: int = 0) -> pa.Table:
    """Normal scores (SCORES) that are higher by `lead` on members, and by `blind` without the model."""
    stream = np.random.default_rng(seed)
    is_member = np.arange(members + non_members) < members
    blind_scores = stream.normal(size=(len(CLASSIFIERS), len(is_member))) + blind * is_member
    sets_threshold = [None if member else bool(number % 2) for number, member in enumerate(is_member)]
    return pa.table(
        {
            "position": np.concatenate([np.arange(members), np.arange(non_members)]),
            "member": is_member,
            "label": stream.integers(0, 10, len(is_member)),
            "log_p": stream.normal(size=len(is_member)) - 5 + lead * is_member,
            "correct": stream.random(len(is_member)) < 0.8,
            "sets_threshold": pa.array(sets_threshold, pa.bool_()),
            "half": np.arange(len(is_member)) % 2,
            **{f"blind_{name}": scores for name, scores in zip(CLASSIFIERS, blind_scores, strict=True)},
        },
        schema=SCORES,
    )


@pytest.mark.parametrize(
    ("scores", "answer"),
    [
        (made_up(1.0), "distinguishable"),
        (made_up(0.0), "undecided"),
        (made_up(-1.0), "undecided"),
        (made_up(1.0, blind=0.5), "not assessable"),
        (made_up(0.0).set_column(3, "log_p", pa.array(np.zeros(600))), "not assessable"),
    ],
    ids=["lower loss", "equal loss", "higher loss", "different sets", "constant output"],
)
def test_answer_follows_area_and_blind_control(scores: pa.Table, answer: str, golden: Golden) -> None:
    verdict = verdict_of(scores)
    assert verdict.answer == answer
    golden(verdict.sentence)


@pytest.mark.parametrize("p_value", [0.5, 0.0])
def test_conditions_follow_the_blind_control_and_the_source(p_value: float) -> None:
    evidence = LossEvidence({}, None, None, {"p_value": p_value}, None, None, None)
    recording = Recording(File("scores.parquet"))
    for source, status in ((TrainedExample(), "confirmed"), (recording, "cannot be checked")):
        config = Membership(LossAttack(source))
        alike, same_kind = list_conditions(config, evidence)
        assert alike.clause == "without the model, the members cannot be distinguished from the non-members"
        assert alike.status == ("confirmed" if p_value else "not met")
        assert same_kind.status == status
        assert list(list_conditions(config, None)) == [same_kind]
        assert is_control_run(config) is False
    assert is_control_run(Membership(LossAttack(TrainedExample(is_null=True))))


def test_no_scores_leave_answer_undecided() -> None:
    assert verdict_of(SCORES.empty_table()).answer == "undecided"


def test_curve_has_exact_intervals_and_area() -> None:
    scores = made_up(1.0)
    curve = roc(NoSettings(), [scores])
    assert curve.schema.equals(ROC)
    is_member = scores["member"].to_numpy()
    log_p = scores["log_p"].to_numpy()
    for row in curve.to_pylist():
        threshold = np.sort(log_p[~is_member])[::-1][round(300 * row["false_positive"])]
        hits = int((log_p[is_member] > threshold).sum())
        exact = stats.binomtest(hits, 300).proportion_ci(method="exact")
        assert (row["true_positive_low"], row["true_positive_high"]) == pytest.approx((exact.low, exact.high))
    trapezoid = np.trapezoid([0, *curve["true_positive"].to_pylist(), 1], [0, *curve["false_positive"].to_pylist(), 1])
    assert trapezoid == pytest.approx(area_under_curve(log_p[is_member], log_p[~is_member]), abs=0.01)


def test_exposure_counts_non_members_at_least_as_likely() -> None:
    scores = made_up(1.0, members=4, non_members=4)
    scores = scores.set_column(3, "log_p", pa.array([-1.0, -2.0, -3.0, -9.0, -1.0, -2.5, -4.0, -5.0]))
    assert exposures(scores)[:4].tolist() == pytest.approx([2 / 5, 2 / 5, 3 / 5, 5 / 5])


def test_figures_show_curve_and_scores(golden: Golden) -> None:
    scores = made_up(1.0)
    for name, figure in (
        ("roc", figures.roc(roc(NoSettings(), [scores]), ROC.empty_table())),
        ("scores", figures.histograms(scores)),
    ):
        assert figure is not None
        golden([figure.title, figure.caption, figure.alt], name)


def save_model(folder: Path) -> ModelFile:
    """A linear model whose logits depend on the mean of the image."""
    import torch

    class Mean(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)[:, :3] * 4

    torch.jit.script(Mean()).save(str(folder / "model.pt"))
    return pin_model(ModelFile(str(folder / "model.pt")))


def test_file_is_scored_on_all_images_of_both_sets(tmp_path: Path) -> None:
    sets = [pin(Dataset(write_folder(tmp_path / name, seed))) for seed, name in enumerate(("mine", "others"))]
    source = ModelAndSets(save_model(tmp_path), *sets)
    scores = score_file(ScoredFile(source, 0), [])
    assert scores.schema.equals(SCORES)
    assert np.bincount(scores["member"].to_numpy()).tolist() == [75, 75]  # 60 for training and 15 for testing
    from tasks.datasets.catalog import load

    images = load(sets[0])
    pixels = np.concatenate([images.train_images, images.test_images]).reshape(75, -1)[:, :3].astype(np.float64)
    labels = np.concatenate([images.train_labels, images.test_labels])
    logits = 4 * pixels / 255
    expected = logits[np.arange(75), labels] - np.log(np.exp(logits).sum(axis=1))
    assert scores["log_p"].to_numpy()[:75] == pytest.approx(expected, abs=1e-5)


def test_recording_is_read_only_in_its_form(tmp_path: Path) -> None:
    def pinned(name: str, content: bytes) -> Recording:
        (tmp_path / name).write_bytes(content)
        return Recording(File(str(tmp_path / name), hashlib.sha256(content).hexdigest()))

    pq.write_table(made_up(1.0), tmp_path / "scores.parquet")
    recording = pinned("good", (tmp_path / "scores.parquet").read_bytes())
    assert read_recording(recording, []).equals(made_up(1.0))
    pq.write_table(pa.table({"loss": [1.0]}), tmp_path / "other.parquet")
    with pytest.raises(FileError, match="has the columns loss; expected a recording by engram"):
        read_recording(pinned("other", (tmp_path / "other.parquet").read_bytes()), [])
    with pytest.raises(FileError, match="is not a Parquet file"):
        read_recording(pinned("noise", b"noise"), [])


def test_job_scores_the_file_or_reads_the_recording() -> None:
    recording = Recording(File("scores.parquet"))
    file = ModelAndSets(ModelFile("model.pt"), Dataset("digits"), Dataset("photos"))
    seed = seeds.derive(3, "loss attack")
    for source, function, config in (
        (recording, read_recording, recording),
        (file, score_file, ScoredFile(file, seed)),
    ):
        job = score_job(Membership(LossAttack(source), seed=3))
        assert (job.function, job.config, job.inputs) == (function, config, ())


@pytest.mark.parametrize("is_null", [False, True])
def test_example_scores_disjoint_random_halves(is_null: bool) -> None:
    config = Membership(LossAttack(TrainedExample(pin(Dataset("digits")), 100, is_null)))
    job = score_job(config)
    halves: Any = job.config
    from tasks.datasets.catalog import load

    images = load(halves.members.part.data)
    members = set(halves.members.rows(images).tolist())
    non_members = set(halves.non_members.rows(images).tolist())
    trained_on = set(job.inputs[0].config.shares[0].rows(images).tolist())
    assert (len(members), len(non_members), len(trained_on)) == (100, 100, 100)
    assert not members & non_members
    assert trained_on & members == (set() if is_null else members)
    assert not trained_on & non_members
