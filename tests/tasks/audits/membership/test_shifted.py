"""Labels of shifted copies: the copies, the attack against hand calculations, its null, and a complete audit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import orchestrator
from tasks.audits.membership.attacks import label_ratio
from tasks.audits.membership.config import About
from tasks.audits.membership.left_out import Mask, Targets, pair_models
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching
from tasks.audits.membership.measures.shifted import (
    SHIFTED,
    offsets,
    score_copies,
    shift_images,
    shifted_labels,
)
from tasks.datasets.mixtures import draw_balanced_members
from tests.tasks.audits.membership.made_up import make_shifted
from tests.tasks.audits.membership.one_target import leave_pairs_out


def targets_of(member: Mask, seed: int) -> Targets:
    return Targets(member, (), None, None, pair_models(member, seed))


def test_copies_are_shifted_and_repeat_edges() -> None:
    assert offsets(1) == [(0, 0), (-1, 0), (0, -1), (0, 1), (1, 0)]
    assert {4 * pixels + 1 for pixels in (2, 3)} == {len(set(offsets(pixels))) for pixels in (2, 3)}
    image = np.arange(6).reshape(1, 2, 3, 1)
    assert shift_images(image, 1, 0)[0, :, :, 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert shift_images(image, 0, -1)[0, :, :, 0].tolist() == [[1, 2, 2], [4, 5, 5]]
    assert np.array_equal(image, shift_images(image, 0, 0))


def test_score_is_mean_label_ratio_over_copies() -> None:
    member = draw_balanced_members(12, 8, 1)
    correct = np.random.default_rng(2).random((8, 12, 3)) < 0.6
    targets = targets_of(member, 0)
    by_copy = []
    for copy in range(3):
        by_copy.append(label_ratio(leave_pairs_out(correct[:, :, copy].astype(float), member, targets.pairs, 5)))
    assert np.mean(by_copy, axis=0) == pytest.approx(score_copies(correct, targets)[5])


def test_copies_improve_the_label_attack() -> None:
    models = 8
    records = 40
    win_rates = list[float]()
    for seed in range(40):
        member = draw_balanced_members(records, models, seed)
        correct = np.random.default_rng(seed).random((models, records, 5)) < 0.7
        targets = targets_of(member, seed)
        won = targets.pairs_won(slice(0, records), score_copies(correct, targets))
        win_rates.append(won.sum(axis=0) / (models // 2))
    # 160 coin flips for each record; ties do not increase the spread: a standard deviation of at most .04.
    assert np.abs(np.mean(win_rates, axis=0) - 0.5).max() < 4.5 * 0.04
    assert np.mean(win_rates) == pytest.approx(0.5, abs=4.5 * 0.00625)

    def area(copies: int) -> float:
        return float(np.mean(shifted_labels(Matching(0), make_shifted(16, 200, copies, 2.0, 3))["auc"].to_numpy()))

    assert 0.55 < area(1) < area(5) - 0.05


def test_summary_has_the_attack_with_the_others() -> None:
    table = shifted_labels(Matching(0), make_shifted(8, 60, 5, 2.0, 4))
    assert set(table["copies"].to_pylist()) == {5}
    rows = summary(About(0.05), [table]).to_pylist()
    assert {row["metric"] for row in rows} > {"AUC", "true-positive rate", "precision"}
    assert all(SHIFTED in row["setting"] for row in rows)
    assert shifted_labels(Matching(0), make_shifted(8, 60, 5, 2.0, 4)[:3]).num_rows == 0


def test_shifted_copies_reuse_stored_trainings(tmp_path: Path) -> None:
    setting = {"data": "digits", "network": "mlp1", "models": 4, "examples": 40, "epochs": 1, "batch": 16}
    common = {"store": tmp_path, "address": "none", "mlflow": "off", "report": False}
    before = orchestrator.run("membership", **common, **setting)
    plan = orchestrator.plan("membership", store=tmp_path, **setting, shift_pixels=1, influence_pairs=5)
    assert plan["missing"] == 4 + 1 + 1 + 1  # copies, their attack, pairs of records, and the summary
    run = orchestrator.run("membership", **common, **setting, shift_pixels=1, influence_pairs=5)
    attack_tables = (run_of_setting.table("attacks").drop_columns("run") for run_of_setting in (before, run))
    assert next(attack_tables).equals(next(attack_tables))
    assert run.table("shifted_labels")["copies"].to_pylist() == [5] * 4
    assert run.table("influences").num_rows == 45
    with pytest.raises(orchestrator.EngramError, match="expected less than 28"):
        orchestrator.plan("membership", store=tmp_path, **setting, shift_pixels=28)
    with pytest.raises(orchestrator.SpecError, match="shift_pixels is not a field of question=canaries, but another"):
        orchestrator.plan("membership", store=tmp_path, data="digits", models=1, canaries=10, shift_pixels=1)
