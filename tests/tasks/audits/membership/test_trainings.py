"""How trained models are queried: each record once, in evaluation mode, and the same way for shifted copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.membership.trainings import answers
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.models.catalog import Network
from tasks.training.mixed import Mixture, train
from tests.tasks.audits.membership.computed_tables import of_answers, of_shifted_answers


@pytest.mark.trained
def test_unshifted_copy_is_scored_like_record() -> None:
    correct = np.stack(of_shifted_answers()["correct"].to_numpy())
    assert np.array_equal(of_answers()["correct"].to_numpy(zero_copy_only=False), correct[:, 0])


def test_models_score_each_record_in_evaluation_mode() -> None:
    trained = BalancedHalf(Part(Dataset("digits"), 0, 40), models=4, number=1, seed=3)
    mixture = Mixture((trained,), Dataset("digits"), 10, Network("mlp1"), True, True, True, epochs=1, batch=20)
    model = train(mixture, [])  # with dropout, batch norm and augmentation
    once, again = (answers(trained, [model]) for _ in range(2))
    few = answers(replace(trained, part=Part(Dataset("digits"), 0, 10)), [model])  # another batch
    assert once.equals(again)
    assert once["row"].to_pylist() == list(range(40))
    assert few["log_odds"].to_numpy() == pytest.approx(once["log_odds"].to_numpy()[:10], abs=1e-4)
