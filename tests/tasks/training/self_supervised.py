"""Small users of the engine: an objective with a teacher, and classifiers with extra state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tasks.models.counter_rng import CounterRng
from tasks.models.layers import GLOROT, Layers, Weight, initial, weights_of
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.objective import Batch

VIEWS = (-20, -21)  # sites of the draws of the two views


def encoder(layers: Layers, x: Tensor) -> Tensor:
    """Codes (models, rows, 16) of values (models, rows, features)."""
    return layers.dense("code", layers.dense("hidden", x, 24, GLOROT).relu(), 16, GLOROT)


def views(batch: Batch, dtype: torch.dtype) -> list[Tensor]:
    """Two views of the pixels, in [0, 1], each with its own noise and brightness."""
    pixels = batch.pixels.to(dtype) / 255
    draws = batch.mode.draws
    assert draws is not None
    rows, features = pixels.shape[1:]
    result = []
    for site in VIEWS:
        result.append(
            pixels * draws.uniform(site, (rows, 1), dtype) + 0.2 * draws.normal(site, (rows, features), dtype)
        )
    return result


class Teacher:
    """A predictor of a teacher's code of another view, where the teacher is a moving average of the learner.

    Grill et al. 2020, "Bootstrap your own latent", eqs. 1 and 2: its momentum rises from `lowest` to 1 by a cosine.
    """

    name = "teacher"
    stackable = True
    capturable = True
    captures_padding = True
    total = False

    def __init__(self, features: int, epochs: float, lowest: float = 0.9) -> None:
        self.epochs = epochs
        self.lowest = lowest
        self.learned = weights_of(lambda layers, x: self.predicted(layers, x[None]), (features,))
        self.names = [name for name in self.learned if not name.startswith("predictor")]

    @property
    def weights(self) -> Mapping[str, Weight]:
        taught = {}
        for name in self.names:
            taught[f"teacher.{name}"] = replace(self.learned[name], learned=False)
        return {**self.learned, **taught}

    def predicted(self, layers: Layers, x: Tensor) -> Tensor:
        return layers.dense("predictor", encoder(layers, x), 16, GLOROT)

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        start_values = initial(self.learned, seed)
        return {**start_values, **{f"teacher.{name}": start_values[name].copy() for name in self.names}}

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        first, second = views(batch, next(iter(tensors.values())).dtype)
        with torch.no_grad():
            target = encoder(Layers({name: tensors[f"teacher.{name}"] for name in self.names}, batch.mode), second)
        predicted = self.predicted(Layers({name: tensors[name] for name in self.learned}, batch.mode), first)
        return 2 - 2 * cosine_similarity(predicted, target, 2)

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        momentum = 1 - (1 - self.lowest) * ((math.pi * passed / self.epochs).cos() + 1) / 2
        for name in self.names:
            teacher = tensors[f"teacher.{name}"]
            learner = tensors[name]
            step = (1 - momentum).to(teacher.dtype).view(-1, *[1] * (teacher.dim() - 1))
            teacher.lerp_(learner, step)

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self.losses(tensors, batch), None


class Averaged(CrossEntropy):
    """A classifier that also keeps the moving average of its weights."""

    @property
    def weights(self) -> Mapping[str, Weight]:
        learned = self.architecture.weights
        return {**learned, **{f"average.{name}": replace(weight, learned=False) for name, weight in learned.items()}}

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        start_values = self.architecture.initial(seed)
        return {**start_values, **{f"average.{name}": np.zeros_like(values) for name, values in start_values.items()}}

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        for name in self.architecture.weights:
            tensors[f"average.{name}"].lerp_(tensors[name], 0.25)


class Recorded(CrossEntropy):
    """A classifier that records the keys of its draws in training."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.keys: list[int] = []

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        assert isinstance(batch.mode.draws, CounterRng)
        self.keys += batch.mode.draws.keys.tolist()
        return super().losses(tensors, batch)
