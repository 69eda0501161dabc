"""The results of each task and its version: neither may change without the other.

If a test here fails, stored results no longer match the task. If the change is intended, raise the
task's version and write the new numbers below.
"""

from __future__ import annotations

import pytest

from orchestrator.spec.fields import replace_fields
from tasks.contract.job import marks
from tasks.datasets.boxed.partition import Partition, TrainingImages
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.diffusion.diffusion_config import Diffusion, UNet
from tasks.diffusion.embedding_diffusion import EmbeddingDiffusion, train_diffusion
from tasks.self_supervised.linear_probe import LinearProbe, linear_probe
from tasks.self_supervised.pretraining import fine_tune, pretrain, tuning
from tasks.self_supervised.pretraining_config import encoder_of_pretraining
from tests.support.fingerprint import TRAINED
from tests.tasks.self_supervised.pictures import config

SCENES = TrainingImages(pin(Dataset("digits-on-photos")), 0.0, Partition(per_class=3, public=100), "A")
TRAINING = config(images=SCENES, epochs=3, recorded=(2, 3), optimiser="adamw", base_learning_rate=0.05)
LOSSES = {
    "vicreg": [24.157, 24.1444],
    "simclr": [4.21737, 3.92758],
    "barlow": [15.3848, 19.3365],
    "byol": [4.03313, 3.85983],
    "dino": [6.47338, 6.97383],
    "supervised": [2.2143, 2.4031],
}


@pytest.mark.trained
@pytest.mark.parametrize("criterion", LOSSES)
def test_training_matches_its_version(criterion: str) -> None:
    table = pretrain(replace_fields(TRAINING, {"criterion": criterion}), [])
    assert marks(pretrain).version == 1
    assert table["epoch"].to_pylist() == [2, 3]
    assert LOSSES[criterion] == pytest.approx(table["train_loss"].to_pylist(), rel=TRAINED)


@pytest.mark.trained
def test_tasks_after_training_match_their_versions() -> None:
    snapshots = pretrain(TRAINING, [])
    tuned = fine_tune(tuning(TRAINING, 2), [snapshots])
    assert marks(fine_tune).version == 1
    assert tuned["epoch"].to_pylist() == [2]
    assert pytest.approx(tuned["train_loss"].to_pylist(), rel=TRAINED) == [2.29746]
    probes = linear_probe(
        LinearProbe(SCENES, encoder_of_pretraining(TRAINING), epochs=5, first=0.5, last=0.1), [snapshots]
    )
    assert marks(linear_probe).version == 1
    assert pytest.approx([row["correct"] for row in probes.to_pylist()], abs=2) == [7, 72, 3, 42, 9, 71, 4, 46]
    small = Diffusion(8, UNet((4, 8), 1, (4,), 2), epochs=2, batch=8, learning_rate=1e-3)
    diffusion_table = train_diffusion(EmbeddingDiffusion(SCENES, encoder_of_pretraining(TRAINING), small), [snapshots])
    assert marks(train_diffusion).version == 1
    assert pytest.approx(diffusion_table["train_loss"][0].as_py(), rel=TRAINED) == [0.992055, 0.979022]
