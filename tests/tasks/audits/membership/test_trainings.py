"""The evaluation of trained models: each record once, in evaluation mode, and in the same way for shifted copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.membership.trainings import answers
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.models.catalog import Network
from tasks.training.mixed import Mixture, train
from tests.tasks.audits.membership.computed_tables import answer_table, shifted_answer_table


@pytest.mark.trained
def test_unshifted_copy_is_scored_like_record() -> None:
    correct = np.stack(shifted_answer_table()["correct"].to_numpy())
    assert np.array_equal(answer_table()["correct"].to_numpy(zero_copy_only=False), correct[:, 0])


def test_models_score_each_record_in_evaluation_mode() -> None:
    half = BalancedHalf(Part(Dataset("digits"), 0, 40), models=4, number=1, seed=3)
    mixture = Mixture((half,), Dataset("digits"), 10, Network("mlp1"), True, True, True, epochs=1, batch=20)
    model = train(mixture, [])  # with dropout, batch norm and augmentation
    first_answers, repeated_answers = (answers(half, [model]) for _ in range(2))
    small_batch = answers(replace(half, part=Part(Dataset("digits"), 0, 10)), [model])  # another batch
    assert first_answers.equals(repeated_answers)
    assert first_answers["row"].to_pylist() == list(range(40))
    assert small_batch["log_odds"].to_numpy() == pytest.approx(first_answers["log_odds"].to_numpy()[:10], abs=1e-4)
