"""A user-defined density model whose training fails for given seeds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from tasks.models.modules import drawing
from tasks.numerics import seeds

SOURCE = '''
import torch
from torch import nn

FAIL = {fail}


class Pixels(nn.Module):
    """Independent normal pixels. Of the seeds with these marks every density is not a number in training."""

    def __init__(self, shape):
        super().__init__()
        self.register_buffer("mark", torch.rand(()))
        self.register_buffer("fail", torch.tensor(FAIL))
        self.mean = nn.Parameter(torch.full(shape, 0.5))
        self.log_scale = nn.Parameter(torch.full(shape, -1.0))

    def log_prob(self, images):
        apart = (images - self.mean) * (-self.log_scale).exp()
        found = -(0.5 * apart.square() + self.log_scale + 0.9189385).flatten(1).sum(1)
        return torch.where((self.fail == self.mark).any(), torch.nan, found)

    def sample(self, count):
        return self.mean + self.log_scale.exp() * torch.randn(count, *self.mean.shape)


def pixels(shape):
    return Pixels(shape)


def silent(shape):
    return nn.Linear(1, 1)
'''


def write(folder: Path, failing: Iterable[int] = ()) -> None:
    """Write the model as `own:pixels`. Trainings with the failing seeds raise."""
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(SOURCE.format(fail=[2.0, *map(mark, failing)]))


def mark(seed: int) -> float:
    """The first number that the model of a training draws."""
    with drawing(seeds.derive(seed, "initial weights"), torch.device("cpu")):
        return float(torch.rand(()))
