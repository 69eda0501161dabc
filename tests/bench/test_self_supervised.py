"""The bench of self-supervised training: what it prints, and that the naive form is of the same kind."""

from __future__ import annotations

import pytest
import torch

from bench.self_supervised import TINY, Bench, rows
from tasks import hardware
from tasks.self_supervised import views

CPU = torch.device("cpu")


def test_training_and_views_are_measured_beside_the_naive_form() -> None:
    with hardware.exactly(CPU):
        trained, drawn = rows(True, CPU)
    assert "training, small-resnet#4, 32 x 32, 20 pictures, batch 10" == trained.what
    assert "two views alone, small-resnet#4, 32 x 32, 20 pictures, batch 10" == drawn.what
    assert trained.ratio > 0
    assert drawn.ratio > 0


def test_naive_views_have_the_mean_and_the_spread_of_ours() -> None:
    bench = Bench(TINY[0], CPU)
    naive = torch.stack([torch.cat([first, second]) for _ in range(20) for first, second in bench.naive_minibatches()])
    order = [part for epoch in range(20) for part in bench.training._order(epoch)]
    ours = torch.stack(
        [
            bench.training._images(squares, bench.training.sizes[:10], views.draw_views(0, 1, step, 10))
            for step, squares in enumerate(bench.training.images.held.minibatches(order))
        ]
    )
    assert naive.shape == ours.shape
    assert float(naive.mean()) == pytest.approx(float(ours.mean()), abs=0.06)
    assert float(naive.std()) == pytest.approx(float(ours.std()), rel=0.06)
