"""Training without labels in two processes equals training in one, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.contract.job import Inputs, single_table, task
from tasks.self_supervised.pretraining import pretrain_encoder
from tasks.self_supervised.pretraining_config import BYOL, DINO, BarlowTwins, Pretraining, SimCLR, Supervised, VICReg
from tasks.self_supervised.snapshots import weights_of
from tasks.training.members import TrainingError
from tasks.worker import checkpoints, compute_context, ranks
from tasks.worker.checkpoints import Link
from tasks.worker.compute_context import ComputeContext
from tasks.worker.process_group import compute_together
from tasks.worker.ranks import Ranks
from tests.tasks.self_supervised.pictures import Blobs, config

# Adam's first step is the sign of the gradient, so that rounding would be amplified.
SETTINGS: dict[str, Any] = {"epochs": 2, "recorded": (0, 1, 2), "optimiser": "sgd", "batch": 11}


def pretrain_blobs_many(
    configs: Sequence[Pretraining], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, setting in enumerate(configs):
        try:
            yield index, pretrain_encoder(setting, Blobs(), index)
        except (TrainingError, ValueError) as error:
            yield index, error


@task(version=1, many=pretrain_blobs_many, spreads=True)
def pretrain_blobs(setting: Pretraining, inputs: Inputs) -> pa.Table:
    return single_table(pretrain_blobs_many, setting, inputs)


def in_two_processes(configs: Sequence[Pretraining]) -> dict[int, pa.Table | Exception]:
    with compute_context.use_context(ComputeContext(processes=2)) as notes:
        outcomes = dict(compute_together(f"{__name__}:pretrain_blobs", configs, [()] * len(configs)))
        assert notes["processes"] == 2
    return outcomes


def assert_close(actual: pa.Table | Exception, expected: pa.Table) -> None:
    """Compare losses and weights within the rounding of float32 over a few steps. Biases start at 0."""
    assert isinstance(actual, pa.Table), actual
    assert actual["epoch"].equals(expected["epoch"])
    losses = (np.array(table["train_loss"].to_pylist(), np.float64) for table in (actual, expected))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for row in range(len(expected)):
        weights = weights_of(expected, row)
        for name, values in weights_of(actual, row).items():
            scale = np.abs(weights[name]).max()
            np.testing.assert_allclose(values, weights[name], rtol=0, atol=1e-4 * scale, err_msg=name)


def linked(setting: Pretraining, states: Sequence[bytes] = ()) -> tuple[pa.Table, bytes]:
    """Train in this process, and return the table and the final state."""
    left: list[bytes] = []
    with checkpoints.use_links([Link(lambda: states, left.append)]):
        return pretrain_encoder(setting, Blobs()), left[0]


@pytest.mark.slow  # two processes import torch
def test_two_processes_equal_one_for_every_criterion() -> None:
    criteria = (VICReg(), SimCLR(), BarlowTwins(), BYOL(), DINO(temperature_warmup=3), Supervised())
    configs = [config(criterion, **SETTINGS) for criterion in criteria]
    configs += [config(criterion, **SETTINGS | {"batch": 12, "accumulate": 3}) for criterion in (VICReg(), DINO())]
    # A chain continues with another number of processes, in both directions.
    full = configs[0]
    one_epoch = replace(full, epochs=1, recorded=(0, 1))
    second = replace(full, recorded=(2,))
    other_state = linked(one_epoch)[1]
    left: list[bytes] = []
    links = [Link() for _ in configs] + [Link(leave=left.append), Link(lambda: [b"no state", other_state])]
    with checkpoints.use_links(links):
        outcomes = in_two_processes([*configs, one_epoch, second])
    for index, setting in enumerate(configs):
        assert_close(outcomes[index], pretrain_encoder(setting, Blobs()))
    whole = pretrain_encoder(full, Blobs())
    assert_close(outcomes[len(configs)], whole.slice(0, 2))
    assert_close(outcomes[len(configs) + 1], whole.slice(2))
    assert_close(linked(second, left)[0], whole.slice(2))


def test_more_processes_than_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_ranks", Ranks(0, 4))
    with pytest.raises(ValueError, match=r"4 processes .* a part of a step has 3 images"):
        pretrain_encoder(config(batch=12, accumulate=4), Blobs())
