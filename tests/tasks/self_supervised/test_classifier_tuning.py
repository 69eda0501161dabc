"""Fine-tuning: its initial snapshot, the weights it changes, and the weights it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.contract.job import marks
from tasks.self_supervised.networks import encoder
from tasks.self_supervised.pretraining import ClassifierTuning, fine_tune, fine_tune_encoder, pretrain_encoder, tuning
from tasks.self_supervised.pretraining_config import Supervised
from tasks.self_supervised.snapshots import SNAPSHOTS, epochs, weights_of
from tests.tasks.self_supervised.pictures import Blobs, config

BLOBS = Blobs()
SETTING = config(epochs=2, recorded=(1, 2))


def test_backbone_learns_and_projector_stays() -> None:
    snapshots = pretrain_encoder(SETTING, BLOBS)
    tuning_config = tuning(SETTING, epochs=8, recorded=(0, 2, 8))
    table = fine_tune_encoder(tuning_config, BLOBS, [snapshots])
    assert table.schema == SNAPSHOTS
    assert epochs(table) == [0, 2, 8]
    assert table["train_loss"][0].as_py() is None
    assert table["train_loss"][2].as_py() < table["train_loss"][1].as_py()
    before, after = weights_of(snapshots, 1), weights_of(table, 2)
    start = weights_of(table, 0)
    assert before.keys() == start.keys()
    assert all((before[name] == start[name]).all() for name in before)
    for name in before:
        same = bool((before[name] == after[name]).all())
        assert name.startswith("projector") == same, name
    embedded = encoder(SETTING, after, torch.device("cpu")).embed(BLOBS.pixels[:2], [0, 2])
    assert np.isfinite(embedded[2].numpy()).all()
    assert table.equals(fine_tune_encoder(tuning_config, BLOBS, [snapshots]))


def test_tuning_starts_from_requested_snapshot() -> None:
    snapshots = pretrain_encoder(SETTING, BLOBS)
    links = [snapshots.slice(0, 1), SNAPSHOTS.empty_table(), snapshots.slice(1)]
    tuning_config = tuning(SETTING, epochs=1, recorded=(0,), start=1)
    first = fine_tune_encoder(tuning_config, BLOBS, links)
    last = fine_tune_encoder(replace(tuning_config, start=None), BLOBS, links)
    assert first["weights"].combine_chunks().equals(snapshots.slice(0, 1)["weights"].combine_chunks())
    assert last["weights"].combine_chunks().equals(snapshots.slice(1)["weights"].combine_chunks())
    with pytest.raises(ValueError, match="start is 5; the snapshots are of epochs 1, 2"):
        fine_tune_encoder(replace(tuning_config, start=5), BLOBS, links)
    with pytest.raises(ValueError, match="start is 0; the snapshots are of epochs none"):
        fine_tune_encoder(replace(tuning_config, start=None), BLOBS, [pa.Table.from_pylist([], schema=SNAPSHOTS)])


def test_tuning_is_supervised_and_version_1() -> None:
    with pytest.raises(ValueError, match="criterion is vicreg; it must be supervised to fine-tune"):
        ClassifierTuning(SETTING)
    tuning_config = tuning(replace(SETTING, batch=1024), start=2)
    assert tuning_config.training.criterion == Supervised()
    assert tuning_config.training.epochs == 20
    assert tuning_config.training.schedule == 20
    assert tuning_config.training.batch == 256
    assert tuning_config.start == 2
    assert marks(fine_tune).name == "self_supervised.fine_tune"
    assert marks(fine_tune).version == 1
