"""Diffusion models of an encoder's embeddings: the task, its chain, its table, and drawings from neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.contract.job import Job
from tasks.datasets.boxed.partition import Partition, TrainingImages, split_pictures
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset
from tasks.diffusion.diffusion_config import Diffusion, UNet
from tasks.diffusion.embedding_diffusion import (
    DIFFUSION,
    EmbeddingDiffusion,
    draw,
    drawn_from_neighbours,
    embed_pictures,
    mean_of,
    model_of,
    train_diffusion,
    up_to,
)
from tasks.self_supervised.networks import encoder, initial_network, tensors
from tasks.self_supervised.pretraining_config import EncoderConfig
from tasks.self_supervised.snapshots import SNAPSHOTS, row, weights_of
from tasks.training.chains import chain
from tasks.worker import checkpoints, compute_context
from tasks.worker.checkpoints import Link

DATA = Dataset("digits-on-photos")
PARTITION = Partition(per_class=2, public=20)
CONFIG = EmbeddingDiffusion(
    TrainingImages(DATA, 0.0, PARTITION, "X"),
    EncoderConfig("small-resnet#4", (8, 8), 32),
    Diffusion(8, UNet((4, 8), 1, (4,), 2), epochs=2, batch=8, learning_rate=1e-3),
)


def snapshots(*seeds: int) -> pa.Table:
    """Untrained encoders, one row each."""
    rows = []
    for epoch, seed in enumerate(seeds):
        rows.append(
            row(
                epoch,
                None,
                {name: tensor.numpy() for name, tensor in tensors(initial_network(CONFIG.encoder, 0, seed)).items()},
            )
        )
    return pa.Table.from_pylist(rows, SNAPSHOTS)


def test_model_trains_on_last_snapshot_and_draws() -> None:
    table = train_diffusion(CONFIG, [snapshots(3, 1)])
    assert table.schema == DIFFUSION
    assert table["epochs"].to_pylist() == [2]
    assert len(table["train_loss"][0]) == 2
    assert len(table["validation_loss"][0]) == 2
    assert table.equals(train_diffusion(CONFIG, [snapshots(1)]))
    assert not table.equals(train_diffusion(CONFIG, [snapshots(3)]))
    # The scale is computed from the embeddings of X.
    pictures = load_with_boxes(DATA)
    rows = split_pictures(pictures, PARTITION).rows("X")
    model = encoder(CONFIG.encoder, weights_of(snapshots(1), 0), torch.device("cpu"))
    vectors = embed_pictures(model, pictures, rows, 32)
    weights, scale = model_of(table)
    np.testing.assert_allclose(scale.mean, vectors.mean(0), rtol=1e-5)
    assert weights["first.weight"].shape == (4, 3, 3, 3)
    # Neighbours give the same images as the mean of their embeddings.
    neighbours = np.array([[0, 1, 2], [3, 3, 0]])
    images = drawn_from_neighbours(CONFIG, snapshots(1), table, pictures, rows[neighbours], ["a", "b"], 3, 0)
    by_hand = np.stack([vectors[[0, 1, 2]].mean(0), (2 * vectors[3] + vectors[0]) / 3])
    expected = draw(CONFIG.diffusion, table, by_hand, ["a", "b"], 3, 0)
    assert images.shape == (2, 8, 8, 3)
    assert np.abs(images.astype(int) - expected).max() <= 1


def test_means_of_vectors_by_hand() -> None:
    vectors = np.array([[0, 2], [4, 4], [8, 0]], np.float32)
    assert mean_of(vectors, np.array([[0, 1], [1, 2]])).tolist() == [[2, 3], [6, 2]]


def test_last_link_keeps_model_of_unbroken_training() -> None:
    jobs = chain(train_diffusion, CONFIG, 1, (Job(train_diffusion, CONFIG),), up_to)
    assert [(job.config.epochs, job.config.kept) for job in jobs] == [(1, False), (2, True)]
    assert jobs[-1].config == CONFIG
    saved_states: list[bytes] = []
    with checkpoints.use_links([Link(leave=saved_states.append)]):
        assert len(train_diffusion(jobs[0].config, [snapshots(1)])) == 0
    unbroken = train_diffusion(CONFIG, [snapshots(1)])
    with checkpoints.use_links([Link(earlier_states=lambda: saved_states)]):
        with compute_context.use_context(compute_context.ComputeContext()) as notes:
            assert unbroken.equals(train_diffusion(CONFIG, [snapshots(1)]))
        assert notes["continued_from"] == 1
        # The state belongs to another encoder and is ignored.
        other_encoder = train_diffusion(CONFIG, [snapshots(2)])
    assert other_encoder.equals(train_diffusion(CONFIG, [snapshots(2)]))


def test_tables_without_a_model_are_refused() -> None:
    with pytest.raises(ValueError, match="a table of snapshots is empty; the training must keep its weights after"):
        train_diffusion(CONFIG, [snapshots()])
    with pytest.raises(ValueError, match="a table of a diffusion model is empty; only the last link"):
        model_of(DIFFUSION.empty_table())


def test_config_checks_its_parts() -> None:
    with pytest.raises(ValueError, match="epochs is 0; it must be at least 1"):
        replace(CONFIG, diffusion=replace(CONFIG.diffusion, epochs=0))
