"""A training that does not fit into memory is computed in more parts, or refused before its first step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tasks.datasets.images import Images
from tasks.language_models.fine_tuning import run_fine_tuning
from tasks.language_models.training import FineTuner
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.models.vae import mnist
from tasks.self_supervised.pretraining import pretrain_encoder
from tasks.self_supervised.pretraining_config import BYOL, DINO, Criterion, VICReg
from tasks.self_supervised.pretraining_loop import Training
from tasks.training import memory
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.device_data import resident
from tasks.training.members import Member, Spec, TrainingError
from tasks.training.memory import find_parts, next_parts
from tasks.training.objective import Objective
from tasks.training.recipe import Recipe
from tasks.training.strategies import Workload
from tasks.training.trainer import depends_on_parts
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.language_models.models import config as tuning_config
from tests.tasks.language_models.models import question_set
from tests.tasks.self_supervised.pictures import Blobs
from tests.tasks.self_supervised.pictures import config as pretraining_config

CPU = torch.device("cpu")
QUESTIONS = question_set()


def fits_from(fewest_parts: int) -> Callable[[int], None]:
    def compute(parts: int) -> None:
        if parts < fewest_parts:
            raise torch.OutOfMemoryError("CUDA out of memory")

    return compute


@pytest.mark.parametrize(
    ("batch", "expected"), [(8, [2, 4, 8, None]), (12, [2, 4, 12, None]), (7, [7, None]), (1, [None])]
)
def test_parts_double_to_the_next_divisor(batch: int, expected: list[int | None]) -> None:
    found: list[int | None] = [1]
    while found[-1] is not None:
        found.append(next_parts(found[-1], batch))
    assert found[1:] == expected


def test_step_that_does_not_fit_is_divided_or_refused() -> None:
    assert find_parts(fits_from(1), 2, 8, CPU, "mlp1", "it matters") == 2
    assert find_parts(fits_from(3), 1, 8, CPU, "mlp1", None) == 4
    with pytest.raises(TrainingError, match=r"one mlp1 with a batch of 8 in 8 parts does not fit into the .*smaller"):
        find_parts(fits_from(9), 1, 8, CPU, "mlp1", None)
    with pytest.raises(TrainingError, match=r"batch of 8 does not fit .* or more parts with accumulate=2: it matters"):
        find_parts(fits_from(2), 1, 8, CPU, "mlp1", "it matters")
    with pytest.raises(ZeroDivisionError):
        find_parts(lambda _: 1 // 0, 1, 8, CPU, "mlp1", None)  # type: ignore[arg-type,return-value]


def tiny_images(shape: tuple[int, int, int]) -> Images:
    stream = np.random.default_rng(0)
    noise = stream.integers(0, 256, (16, *shape), dtype=np.uint8), stream.integers(0, 10, 16)
    return Images(*noise, *noise, 10)


@pytest.mark.parametrize(
    ("learning", "expected"),
    [
        (CrossEntropy(Architecture("mlp1", (28, 28, 1), 10)), False),
        (CrossEntropy(Architecture("mlp1", (28, 28, 1), 10, Regularisers(dropout=0.5))), False),
        (CrossEntropy(Architecture("resnet18", (28, 28, 1), 10)), True),
        (Elbo(mnist((28, 28, 1))), False),
    ],
    ids=["dense", "dropout", "batch norm", "sampling"],
)
def test_only_batch_norm_depends_on_parts(learning: Objective, expected: bool) -> None:
    images = tiny_images((28, 28, 1))
    spec = Spec(learning, Recipe(1, 16, 1e-3), images)
    assert depends_on_parts(Workload(spec, resident(images, CPU), [Member(0, np.arange(16))], [{}])) == expected


IN_PARTS = """
import resource, sys
import numpy as np, torch
from tasks.datasets.images import Images
from tasks.models.networks import Architecture
from tasks.training import memory
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.members import Member, Spec
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, use_context

torch.set_num_threads(1)
stream = np.random.default_rng(0)
noise = lambda n: (stream.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8), stream.integers(0, 10, n))
images = Images(*noise(4096), *noise(16), 10)
spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 10, width=0.1)), Recipe(1, 4096, 3e-4), images)
with use_context(ComputeContext()) as notes:
    ((_, whole),) = train_many(spec, [Member(0, np.arange(4096))])
    print(notes.get("parts"))
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 180 * 2**20, -1))
    ((_, parts),) = train_many(spec, [Member(0, np.arange(4096))])
    print(notes.get("parts"))
print(all(np.allclose(parts.weights[name], values, atol=1e-4) for name, values in whole.weights.items()))
"""


@pytest.mark.slow
def test_classifier_trains_in_parts_under_a_limit() -> None:
    mapped = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-c", IN_PARTS], capture_output=True, text=True, check=False, env=mapped)
    assert done.returncode == 0, done.stderr
    planned, adapted, is_equal = done.stdout.split()
    assert planned == "None"
    assert int(adapted) >= 2
    assert is_equal == "True"


@pytest.mark.parametrize("criterion", [VICReg(), BYOL(), DINO(temperature_warmup=3)], ids=lambda kind: kind.tag)
def test_rehearsal_does_not_change_a_training(monkeypatch: pytest.MonkeyPatch, criterion: Criterion) -> None:
    config = pretraining_config(criterion, epochs=1)
    expected = pretrain_encoder(config, Blobs())
    rehearsed: list[int] = []
    monkeypatch.setattr(memory, "raises_when_full", lambda device: rehearsed.append(1) is None)
    assert pretrain_encoder(config, Blobs()).equals(expected)
    assert rehearsed == [1]


def test_encoder_with_batch_norm_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "raises_when_full", lambda device: True)
    monkeypatch.setattr(Training, "_gradients", fail_below(Training._gradients, 2))
    with pytest.raises(TrainingError, match="more parts with accumulate=2: batch norm would use the statistics of"):
        pretrain_encoder(pretraining_config(epochs=1), Blobs())


def test_language_model_is_tuned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tuning_config(epochs=2, dropout=0.0)
    expected = run_fine_tuning(config, QUESTIONS)
    monkeypatch.setattr(memory, "raises_when_full", lambda device: True)
    monkeypatch.setattr(FineTuner, "_backward", fail_below(FineTuner._backward, 2))
    with use_context(ComputeContext()) as notes:
        table = run_fine_tuning(config, QUESTIONS)
    assert notes["parts"] == 2
    assert table["train_loss"][0].as_py() == pytest.approx(expected["train_loss"][0].as_py(), rel=1e-3)
    with pytest.raises(TrainingError, match="each part would draw its own dropout masks"):
        run_fine_tuning(replace(config, dropout=0.1), QUESTIONS)


def fail_below(compute: Callable[..., Any], fewest_parts: int) -> Callable[..., Any]:
    """The function, which runs out of memory if the number of parts is too small."""

    def limited(*arguments: Any) -> Any:
        training = arguments[0]
        parts = training.parts if isinstance(training, Training) else arguments[-1]
        if parts < fewest_parts:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(*arguments)

    return limited
