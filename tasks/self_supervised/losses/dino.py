"""DINO's loss: the copy's distribution over dimensions, centred and sharpened, is to be met from the other view."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from tasks.self_supervised.criterion import DINO


def loss(
    config: DINO,
    students: tuple[Tensor, Tensor],
    teachers: tuple[Tensor, Tensor],
    centre: Tensor,
    temperature: float,
) -> Tensor:
    """The loss of either view's embeddings by the student and by its slow copy, (n, d) each, in nats:

    the mean over pictures and over both pairs of different views of - sum_k softmax((t - centre) / temperature)_k
    log softmax(s / student temperature)_k

    Caron et al. 2021, "Emerging properties in self-supervised vision transformers", eqs. 1 and 2, with two views.
    """
    total = students[0].new_zeros(())
    for student, teacher in zip(students, reversed(teachers), strict=True):
        wanted = functional.softmax((teacher - centre) / temperature, dim=1)
        total = total - (wanted * functional.log_softmax(student / config.temperature, dim=1)).sum(1).mean() / 2
    return total
