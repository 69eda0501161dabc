"""The bench of language models: what it prints, and that both sides do the same."""

from __future__ import annotations

import pytest
import torch

from bench.language_models import TINY, Bench, rows
from tasks import hardware
from tasks.language_models.pretrained import quiet

CPU = torch.device("cpu")


@pytest.mark.slow
def test_training_and_answering_are_measured_beside_transformers() -> None:
    with hardware.exactly(CPU), quiet():
        trained, answered = rows(True, CPU)
    assert "training, tiny-t5#16x1, 24 questions, batch 8" == trained.what
    assert "answering, tiny-t5#16x1, 24 questions, batch 8" == answered.what
    assert trained.ratio > 0
    assert answered.ratio > 0


def test_both_give_the_same_answers() -> None:
    with hardware.exactly(CPU), quiet():
        bench = Bench(TINY[0], CPU)
        for _ in range(3):
            bench.train()
        assert bench.answer_by_generate() == bench.answer()
