"""Training without labels: losses, links of a chain, parts of a minibatch, and errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from tasks.datasets.boxed.partition import Partition, TrainingImages
from tasks.datasets.dataset import Dataset
from tasks.self_supervised import views
from tasks.self_supervised.learners import Moment, learner
from tasks.self_supervised.networks import Network, encoder, initial_network
from tasks.self_supervised.pretraining import pretrain, pretrain_encoder, pretrain_many
from tasks.self_supervised.pretraining_config import (
    BACKBONES,
    BYOL,
    DINO,
    Augmentation,
    BarlowTwins,
    Criterion,
    Pretraining,
    SimCLR,
    Supervised,
    VICReg,
    encoder_of_pretraining,
)
from tasks.self_supervised.pretraining_loop import Training
from tasks.self_supervised.snapshots import SNAPSHOTS, epochs
from tasks.self_supervised.training_set import training_set
from tasks.training.chains import chain, recording_up_to
from tasks.training.members import TrainingError
from tasks.worker import checkpoints, compute_context
from tasks.worker.checkpoints import Link
from tests.tasks.self_supervised.pictures import Blobs, config

CPU = torch.device("cpu")
BLOBS = Blobs()
ALL = (VICReg(), SimCLR(), BarlowTwins(), BYOL(), DINO(temperature_warmup=3), Supervised())


def linked(config: Pretraining, states: Iterable[bytes] = ()) -> tuple[pa.Table, bytes, dict[str, Any]]:
    """The snapshots of a link that may continue from the given states; the state it leaves, and its notes."""
    saved_states: list[bytes] = []
    context = compute_context.ComputeContext()
    with (
        compute_context.use_context(context) as notes,
        checkpoints.use_links([Link(lambda: states, saved_states.append)]),
    ):
        table = pretrain_encoder(config, BLOBS)
    return table, saved_states[0], dict(notes)


def training(config: Pretraining) -> Training:
    """The training before its first step."""
    classes = len(BLOBS.names) if isinstance(config.criterion, Supervised) else 0
    network = initial_network(encoder_of_pretraining(config), classes, config.seed)
    learning = learner(config.criterion, network, config.projector, config.seed)
    return Training(config, learning, training_set(config, BLOBS, CPU), CPU)


@pytest.mark.parametrize("criterion", ALL, ids=lambda criterion: criterion.tag)
def test_chain_equals_unbroken_training_bit_for_bit(criterion: Criterion) -> None:
    full_config = config(criterion, epochs=5, recorded=(0, 1, 3, 5))
    unbroken, end, _ = linked(full_config)
    tables = []
    state = b""
    notes = {}
    for link in chain(pretrain, full_config, 2, part=recording_up_to):
        torch.manual_seed(len(tables))  # another process has another state
        table, state, notes = linked(link.config, [state])
        tables.append(table)
    assert unbroken.schema == SNAPSHOTS
    assert epochs(unbroken) == [0, 1, 3, 5]
    assert unbroken.equals(pa.concat_tables(tables))
    assert end == state
    assert notes["continued_from"] == 4
    assert set(notes) == {"way", "stack", "steps_per_second", "continued_from"}


def test_training_depends_on_seed_and_keeps_torch_state() -> None:
    before = torch.get_rng_state()
    first, second = pretrain_encoder(config(epochs=1), BLOBS), pretrain_encoder(config(epochs=1), BLOBS)
    assert torch.equal(before, torch.get_rng_state())
    assert first.equals(second)
    assert not first.equals(pretrain_encoder(config(epochs=1, seed=1), BLOBS))


@pytest.mark.parametrize(
    "other_config", [config(epochs=1, seed=1), config(BYOL(), epochs=1)], ids=["seed", "criterion"]
)
def test_state_of_another_training_is_ignored(other_config: Pretraining) -> None:
    full_config = config(epochs=2, recorded=(1, 2))
    table, _, notes = linked(replace(full_config, recorded=()), [linked(other_config)[1], linked(config(epochs=1))[1]])
    assert notes["continued_from"] == 1
    alone, _, notes = linked(full_config, [linked(other_config)[1]])
    assert "continued_from" not in notes
    assert alone.slice(1).equals(table)


@pytest.mark.parametrize("criterion", ALL, ids=lambda criterion: criterion.tag)
def test_losses_fall(criterion: Criterion) -> None:
    setting = config(
        criterion, epochs=20, schedule=20, recorded=(1, 20), optimiser="adamw", base_learning_rate=0.05, batch=30
    )
    first, last = pretrain_encoder(setting, BLOBS)["train_loss"].to_pylist()
    if isinstance(criterion, DINO):  # its targets move: what falls is their distance, not their entropy
        assert np.isfinite([first, last]).all()
    else:
        assert last < 0.97 * first


@pytest.mark.parametrize("criterion", ALL, ids=lambda criterion: criterion.tag)
def test_parts_of_minibatch_give_its_gradient(criterion: Criterion) -> None:
    """Compare with one graph over all parts, in which batch norm also sees the parts."""
    once = training(config(criterion, batch=12, accumulate=1))
    parts = training(config(criterion, batch=12, accumulate=3))
    moment = Moment(2, 0.3)
    places = np.arange(12)
    (squares,) = parts.images.squares.minibatches([places])
    numbers = views.draw_views(0, 2, 0, 12, parts.learner.views)
    losses: list[Tensor] = []
    embeddings = []
    targets = []
    once.modules.train()
    for start in (0, 4, 8):
        part = slice(start, start + 4)
        images = once._images(squares[part], once.sizes[part], numbers[:, part])
        embeddings.append(once.learner.embed(images))
        targets.append(once.learner.targets(images))
    if targets[0] is None:
        joined = None
    else:
        joined = tuple(torch.cat(target_parts) for target_parts in zip(*targets, strict=True))
    loss = once.learner.loss(torch.cat(embeddings, 1), joined, once.labels[:12], moment)  # type: ignore[arg-type]
    loss.backward()  # type: ignore[no-untyped-call]
    parts.modules.train()
    recorded_gradients: list[list[Tensor]] = []
    parts.optimiser = Watching(recorded_gradients)
    losses.append(parts._step(places, squares, numbers, moment, 0.0))
    torch.testing.assert_close(loss.detach(), losses[0])
    for expected, actual in zip(once.parameters, recorded_gradients[0], strict=True):
        assert expected.grad is not None
        torch.testing.assert_close(expected.grad, actual, atol=2e-5, rtol=2e-4)
    # The running statistics of batch norm were updated once for each part.
    for name, tensor in once.modules.named_buffers():
        torch.testing.assert_close(tensor, dict(parts.modules.named_buffers())[name]) if "num" not in name else None


class Watching:
    """An optimiser that keeps the gradients and moves nothing."""

    def __init__(self, recorded_gradients: list[list[Tensor]]) -> None:
        self.recorded_gradients = recorded_gradients
        self.moments: dict[str, list[Tensor]] = {}

    def step(self, gradients: list[Tensor], rate: float, number: int) -> None:
        self.recorded_gradients.append([gradient.clone() for gradient in gradients])


def test_small_set_is_one_minibatch_with_scaled_rate() -> None:
    small = training(config(batch=64))
    assert small.batch == 30
    assert small.steps_per_epoch == 1
    assert small.rate == 0.2 * 30 / 256
    rows = training(config(batch=8))._order(1)
    assert [len(minibatch) for minibatch in rows] == [8, 8, 8]
    assert len(set(np.concatenate(rows).tolist())) == 24
    # A part of a single image is joined to the one before: batch norm needs two.
    assert pretrain_encoder(config(batch=58, accumulate=2, epochs=1), BLOBS).num_rows == 1


def test_learning_rates_follow_schedule_not_epochs() -> None:
    rates = config(epochs=2, schedule=10, warmup=4).rates.factors(np.array([0.0, 2.0, 4.0, 7.0, 10.0]))
    np.testing.assert_allclose([0, 0.5, 1, 0.5005, 0.001], rates, atol=1e-12)


def test_teacher_and_centre_follow_their_momenta() -> None:
    run = training(config(DINO(momentum=0.9, centre_momentum=0.8), batch=30, accumulate=1))
    before = [weight.clone() for weight in run.learner.extra_state().values()]
    list(run.take_steps(1))
    after = list(run.learner.extra_state().values())
    progress = 1 / 6
    students = list(run.modules["encoder"].parameters())
    momentum = 1 - 0.1 * (np.cos(np.pi * progress) + 1) / 2
    for old, new, student in zip(before[:-1], after[:-1], students, strict=True):
        torch.testing.assert_close(momentum * old + (1 - momentum) * student.detach(), new, atol=1e-6, rtol=1e-5)
    assert before[-1].abs().max() == 0
    assert 0 < after[-1].abs().max() < 1


def test_failing_training_leaves_others_of_its_call() -> None:
    images = TrainingImages(Dataset("digits-on-photos"), 0.0, Partition(per_class=3, public=20), "B")
    good = replace(config(epochs=1), images=images)
    bad = replace(good, optimiser="sgd", base_learning_rate=1e30, epochs=3)
    few = replace(good, images=replace(images, partition=Partition(per_class=10**6)))
    outcomes = dict(pretrain_many([good, bad, few], [(), (), ()]))
    assert isinstance(outcomes[0], pa.Table)
    assert isinstance(outcomes[1], TrainingError)
    assert "per_class may be at most" in str(outcomes[2])
    assert outcomes[0].equals(pretrain(good, ()))
    with pytest.raises(TrainingError):
        pretrain(bad, ())


def test_infinite_loss_names_step_and_seed() -> None:
    with pytest.raises(TrainingError, match=r"loss is not finite at step \d+ \(seed 0\)"):
        pretrain_encoder(config(optimiser="sgd", base_learning_rate=1e30), BLOBS)


def test_images_read_from_file_give_same_training(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    setting = config(epochs=2)
    inside = pretrain_encoder(setting, BLOBS)
    monkeypatch.setattr("tasks.self_supervised.training_set.SHARE", 0.0)
    assert inside.equals(pretrain_encoder(setting, BLOBS))
    assert len(list(tmp_path.glob("*.pixels"))) == 1


def test_bfloat16_trains_and_keeps_float32_weights() -> None:
    table = pretrain_encoder(config(precision="bfloat16", epochs=2, accumulate=2), BLOBS)
    assert np.isfinite(table["train_loss"].to_pylist()).all()
    assert not table.equals(pretrain_encoder(config(epochs=2, accumulate=2), BLOBS))


# vit-l takes half a minute and is timm's class of vit-b in another size (below), so it is left out.
@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name != "vit-l"])
def test_every_backbone_takes_a_step_and_embeds(backbone: str) -> None:
    """Two small images, whose batch norm makes for large gradients: a small rate."""
    setting = config(backbone=backbone, batch=2, projector=(4,), augmentation=Augmentation(resolution=32, side=32))
    one = training(setting)
    one.modules.train()
    (squares,) = one.images.squares.minibatches([np.arange(2)])
    loss = one._step(np.arange(2), squares, views.draw_views(0, 1, 0, 2), Moment(1, 0.1), 1e-4)
    assert torch.isfinite(loss)
    norms = torch.stack(torch._foreach_norm([weight.grad for weight in one.parameters]))  # type: ignore[misc]
    assert torch.isfinite(norms).all()
    assert (norms > 0).sum() > 0.9 * len(norms)
    model = encoder(setting, one.weights(), CPU)
    embedded = model.embed(BLOBS.pixels[:1], [0, 1])
    assert tuple(embedded[1].shape) == (1, 4)
    assert torch.isfinite(embedded[0]).all()


def test_largest_transformer_is_vit_b_with_other_sizes() -> None:
    """24 blocks of 1,024 for 12 of 768; each has 12 d^2 + 13 d weights (Dosovitskiy et al. 2021, table 1)."""
    with torch.device("meta"):
        large = Network(encoder_of_pretraining(config(backbone="vit-l")), 0).backbone
        base = Network(encoder_of_pretraining(config(backbone="vit-b")), 0).backbone
    assert type(large) is type(base)
    names = []
    for model in (large, base):
        names.append({name for name, _ in model.named_parameters() if not name.startswith("blocks.")})
    assert names[0] == names[1]
    for network, blocks, d in ((large, 24, 1024), (base, 12, 768)):
        count = sum(weight.numel() for name, weight in network.named_parameters() if name.startswith("blocks."))
        assert blocks * (12 * d * d + 13 * d) == count
