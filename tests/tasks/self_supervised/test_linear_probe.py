"""Linear probes compared with torch's training, their accuracy and their tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.contract.job import marks
from tasks.numerics import seeds
from tasks.self_supervised.linear_probe import PROBES, LinearProbe, correct, linear_probe, probe_snapshots, train_probe
from tasks.self_supervised.pretraining import pretrain_encoder
from tasks.self_supervised.pretraining_config import encoder_of_pretraining
from tests.tasks.self_supervised.pictures import Blobs, config

PLAIN = config(epochs=2, recorded=(0, 2))
WITH_VALIDATION = replace(PLAIN.images, partition=replace(PLAIN.images.partition, validation=12))
SETTING = replace(PLAIN, images=WITH_VALIDATION)
PROBE = LinearProbe(SETTING.images, encoder_of_pretraining(SETTING), epochs=3, batch=8)


def test_probe_equals_torch_training() -> None:
    draws = torch.Generator().manual_seed(0)
    embeddings = torch.randn(50, 6, generator=draws)
    labels = torch.randint(0, 3, (50,), generator=draws)
    weights, constants = train_probe(PROBE, embeddings, labels.numpy(), 3)
    layer = torch.nn.Linear(6, 3)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0, momentum=0.9)
    # The learning rate multiplies the momentum buffer, in torch as here.
    rates = iter(np.linspace(10, 0.1, 3 * 7))
    for epoch in range(3):
        order = seeds.generator(0, "probe order", epoch).permutation(50)
        for start in range(0, 50, 8):
            rows = torch.from_numpy(order[start : start + 8])
            optimiser.param_groups[0]["lr"] = next(rates)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(layer(embeddings[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    torch.testing.assert_close(layer.weight.detach(), weights, atol=1e-2, rtol=1e-3)
    torch.testing.assert_close(layer.bias.detach(), constants, atol=1e-2, rtol=1e-3)


def test_probe_learns_linear_labels_only() -> None:
    draws = torch.Generator().manual_seed(0)
    embeddings = torch.randn(600, 4, generator=draws)
    labels = (embeddings[:, 0] > 0).long().numpy()
    probe = replace(PROBE, epochs=20, batch=64)
    assert correct(train_probe(probe, embeddings, labels, 2), embeddings, labels) > 0.95 * 600
    unrelated_embeddings = torch.randn(600, 4, generator=draws)
    right = correct(train_probe(probe, embeddings, labels, 2), unrelated_embeddings, labels)
    assert pytest.approx(right / 600, abs=0.08) == 0.5


def test_snapshots_and_layers_are_probed_on_both_splits() -> None:
    blobs = Blobs()
    snapshots = pretrain_encoder(SETTING, blobs)
    table = probe_snapshots(PROBE, blobs, [snapshots])
    assert table.schema == PROBES
    keys = list(zip(*(table[name].to_pylist() for name in ("epoch", "layer", "split")), strict=True))
    expected = []
    for epoch in (0, 2):
        for layer in (0, 2):
            for split in ("train", "validation"):
                expected.append((epoch, layer, split))
    assert expected == keys
    assert table["n"].to_pylist() == [30, 12] * 4
    assert all(0 <= row["correct"] <= row["n"] for row in table.to_pylist())
    parts = probe_snapshots(replace(PROBE, layers=(1,)), blobs, [snapshots.slice(0, 1), snapshots.slice(1)])
    assert parts["epoch"].to_pylist() == [0, 0, 2, 2]
    assert table.equals(
        pa.concat_tables([probe_snapshots(PROBE, blobs, [snapshots.slice(index, 1)]) for index in (0, 1)])
    )


def test_ranges_are_checked_and_version_is_1() -> None:
    with pytest.raises(ValueError, match=r"layers is \(1, 0\); it must be numbers from 0, ascending"):
        replace(PROBE, layers=(1, 0))
    with pytest.raises(ValueError, match=r"momentum is 1.0"):
        replace(PROBE, momentum=1.0)
    assert marks(linear_probe).name == "self_supervised.linear_probe"
    assert marks(linear_probe).version == 1
