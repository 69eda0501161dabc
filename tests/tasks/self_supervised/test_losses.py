"""The losses compared with lightly's and with cases computed by hand."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from tasks.self_supervised.learners import barlow_twins, byol, dino, simclr, teacher_momentum, vicreg
from tasks.self_supervised.pretraining_config import DINO, BarlowTwins, SimCLR, VICReg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightly.loss import BarlowTwinsLoss, DINOLoss, NegativeCosineSimilarity, NTXentLoss, VICRegLoss

SHAPES = [(12, 5), (5, 12), (8, 8)]  # (n, d): covariances go through n x n or d x d products


def pair(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    first = torch.randn(n, d, generator=draws, dtype=torch.float64) * 2 + 1
    return first, first + torch.randn(n, d, generator=draws, dtype=torch.float64)


def slopes(loss: Tensor, views: tuple[Tensor, Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss, views))


def agree(
    loss: Tensor, reference: Tensor, views: tuple[Tensor, Tensor], factor: float = 1.0, plus: float = 0.0
) -> None:
    """Check that the loss is `factor` times the reference plus `plus`, and its slopes `factor` times."""
    torch.testing.assert_close(loss, reference * factor + plus)
    for slope, reference_slope in zip(slopes(loss, views), slopes(reference, views), strict=True):
        torch.testing.assert_close(slope, reference_slope * factor)


@pytest.mark.parametrize("shape", SHAPES)
def test_vicreg_is_lightlys(shape: tuple[int, int]) -> None:
    views = tuple(view.requires_grad_() for view in pair(*shape))
    assert len(views) == 2
    agree(vicreg(VICReg(), *views), VICRegLoss()(*views), views)
    agree(vicreg(VICReg(10, 5, 2), *views), VICRegLoss(10, 5, 2)(*views), views)


def test_vicreg_by_hand() -> None:
    first = torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)
    second = torch.tensor([[0.0, 2.0], [2.0, 0.0]], dtype=torch.float64)
    # Squares 0, 4, 0, 4; variances 2, above 1; covariances 2 and -2, each twice, over 2 dimensions.
    assert vicreg(VICReg(1, 0, 0), first, second).item() == 2.0
    assert vicreg(VICReg(0, 1, 0), first, second).item() == 0.0
    assert pytest.approx(vicreg(VICReg(0, 0, 1), first, second).item()) == 8.0
    flat = torch.ones(3, 4, dtype=torch.float64)  # collapsed: each view's hinge is 1 - sqrt(1e-4)
    assert pytest.approx(vicreg(VICReg(), flat, flat).item()) == 25 * 0.99


@pytest.mark.parametrize("shape", SHAPES)
def test_simclr_is_lightlys(shape: tuple[int, int]) -> None:
    views = tuple(view.requires_grad_() for view in pair(*shape))
    assert len(views) == 2
    agree(simclr(SimCLR(), *views), NTXentLoss(0.15)(*views), views)


def test_simclr_by_hand() -> None:
    views = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    # Each view has its partner at cosine 1 and two other views at 0.
    expected = -math.log(math.exp(2) / (math.exp(2) + 2))
    assert expected == pytest.approx(simclr(SimCLR(0.5), views, views).item())


@pytest.mark.parametrize("shape", SHAPES)
def test_barlow_twins_is_lightlys(shape: tuple[int, int]) -> None:
    views = tuple(view.requires_grad_() for view in pair(*shape))
    assert len(views) == 2
    agree(barlow_twins(BarlowTwins(), *views), BarlowTwinsLoss(0.0051)(*views), views)


def test_barlow_twins_by_hand() -> None:
    first = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64) * 1e4  # so that epsilon is negligible
    second = first * torch.tensor([1.0, -1.0])
    # Correlations 1, -1, 1, -1: one on the diagonal is off by 2, two off the diagonal count one each.
    assert pytest.approx(barlow_twins(BarlowTwins(0.5), first, second).item()) == 4 + 0.5 * 2


def test_byol_is_twice_lightlys_mean_plus_four() -> None:
    predictions = tuple(view.requires_grad_() for view in pair(6, 4))
    targets = pair(6, 4, 1)
    assert len(predictions) == 2
    similarity = NegativeCosineSimilarity()
    reference = similarity(predictions[0], targets[1]) + similarity(predictions[1], targets[0])
    agree(byol(predictions, targets), reference, predictions, 2.0, 4.0)


def test_byol_by_hand() -> None:
    across = torch.tensor([[2.0, 0.0]])
    up = torch.tensor([[0.0, 1.0]])
    assert byol((across, up), (up, across)).item() == 0.0
    assert byol((across, up), (across, up)).item() == 4.0
    assert byol((across, up), (-up, -across)).item() == 8.0


def test_teacher_momentum_rises_to_at_most_one() -> None:
    assert teacher_momentum(0.996, 0.0) == 0.996
    assert pytest.approx(teacher_momentum(0.996, 0.5)) == 0.998
    assert teacher_momentum(0.996, 1.0) == 1.0
    assert teacher_momentum(0.996, 1.5) == 1.0
    assert all(teacher_momentum(0.5, step / 997) <= 1 for step in range(1200))


@pytest.mark.parametrize("epoch", [1, 20, 50, 80])
def test_dino_is_lightlys(epoch: int) -> None:
    config = DINO()
    students = tuple(view.requires_grad_() for view in pair(6, 9))
    teachers = pair(6, 9, 1)
    assert len(students) == 2
    reference = DINOLoss(9, warmup_teacher_temp=0.04, teacher_temp=0.07, warmup_teacher_temp_epochs=50)
    reference.center = reference.center.double()
    reference.center += 0.3 * torch.arange(9)
    loss = dino(config, students, teachers, reference.center[0, 0].clone(), config.teacher_temperature(epoch))
    agree(loss, reference(list(teachers), list(students), epoch=epoch - 1), students)


def test_dino_by_hand() -> None:
    config = DINO(temperature=1.0)
    flat = torch.zeros(3, 4)
    peaked = torch.tensor([[50.0, 0.0, 0.0, 0.0]] * 3)
    assert math.log(4) == pytest.approx(dino(config, (flat, flat), (peaked, peaked), flat[0], 1.0).item())
    assert pytest.approx(dino(config, (peaked, peaked), (peaked, peaked), flat[0], 1.0).item(), abs=1e-6) == 0.0
    centred = dino(config, (flat, peaked), (peaked, peaked), peaked[0], 1.0).item()  # the teacher is uniform
    assert (math.log(4) + 37.5) / 2 == pytest.approx(centred)


def test_teacher_temperature_rises_over_its_epochs() -> None:
    assert pytest.approx([DINO().teacher_temperature(epoch) for epoch in (1, 50, 51)]) == [0.04, 0.07, 0.07]
    assert pytest.approx(DINO(temperature_warmup=3).teacher_temperature(2)) == 0.055
    assert pytest.approx(DINO(temperature_warmup=0).teacher_temperature(1)) == 0.07
