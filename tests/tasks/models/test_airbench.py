"""What is particular to airbench: its first layer, the images it is shown, and what of them a model depends on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from tasks.datasets.images import Images
from tasks.models.airbench import SHIFT, change_images, whitening
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Mode
from tasks.models.networks import Architecture
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import resident
from tasks.training.members import Member, Spec, Trained
from tasks.training.objective import Batch
from tasks.training.recipe import Recipe
from tasks.training.step import Step
from tasks.training.strategies import Strategy, Workload
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, use_context

CPU = torch.device("cpu")
SHAPE = (16, 16, 3)
RECIPE = Recipe(2, 8, 11.5, optimiser="nesterov")


def images(count: int = 40) -> Images:
    stream = np.random.default_rng(0)
    # Neighbouring pixels are similar, as in photographs.
    small = stream.integers(0, 256, (count, 5, 5, 3)).astype(np.float32)
    pixels = np.kron(small, np.ones((1, 4, 4, 1)))[:, 2:18, 1:17]
    pixels = (0.9 * pixels + stream.integers(0, 25, pixels.shape)).astype(np.uint8)
    labels = stream.integers(0, 4, count)
    return Images(pixels, labels, pixels[:10], labels[:10], 4)


def spec_of(data: Images, recipe: Recipe = RECIPE) -> Spec:
    return Spec(CrossEntropy(Architecture("airbench", SHAPE, 4), augmentation=True), recipe, data)


def test_first_layer_whitens_patches() -> None:
    data = images()
    tensors = {
        name: torch.from_numpy(values).double() for name, values in whitening(torch.tensor(data.train_images)).items()
    }
    pixels = torch.tensor(data.train_images).double().permute(0, 3, 1, 2) / 255
    outputs = functional.conv2d(pixels, tensors["whiten.weight"], tensors["whiten.bias"]).transpose(0, 1).flatten(1)
    assert outputs.shape[0] == 24
    torch.testing.assert_close(outputs[:12], -outputs[12:])
    torch.testing.assert_close(outputs.mean(1), torch.zeros(24).double(), atol=1e-6, rtol=0)
    # Variances are below 1 by the share of the added variance.
    covariance = torch.cov(outputs[:12])
    assert (covariance - covariance.diag().diag()).abs().max() < 1e-3
    assert 0.9 < covariance.diag().min() <= covariance.diag().max() < 1


def test_first_layer_is_equal_for_any_order_of_images() -> None:
    rows = torch.tensor(images(300).train_images)
    for name, values in whitening(rows).items():
        np.testing.assert_array_equal(values, whitening(rows.flip(0))[name])


def test_training_images_are_shifted_and_mirrored() -> None:
    data = images(30)
    pixels = torch.from_numpy(data.train_images.reshape(1, 30, -1) / 255)
    mirrored = torch.arange(30)[None] % 2 == 1
    changed = change_images(pixels, SHAPE, CounterRng(torch.tensor([5]), torch.tensor([3.0])), mirrored)
    places = set()
    for row in range(30):
        image = pixels[0, row].view(SHAPE).permute(2, 0, 1)
        padded = functional.pad(image, (SHIFT,) * 4, mode="reflect")
        matches = []
        for down in range(2 * SHIFT + 1):
            for across in range(2 * SHIFT + 1):
                crop = padded[:, down : down + 16, across : across + 16]
                if torch.equal(crop.flip(2) if row % 2 else crop, changed[0, row].view(SHAPE).permute(2, 0, 1)):
                    matches.append((down, across))
        assert len(matches) == 1
        places.update(matches)
    assert len(places) > 10


def test_images_are_mirrored_in_alternating_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced image is mirrored like the original, so that a canary and its control differ in nothing else."""
    data = images()
    replaced = {3: data.train_images[4]}
    members = [Member(1, np.arange(40)), Member(1, np.arange(40), replaced), Member(2, np.arange(21))]
    device_data, aliases = resident(data, CPU).replace_images([member.replaced for member in members])
    workload = Workload(spec_of(data), device_data, members, aliases)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    mirror = Step._mirrored
    monkeypatch.setattr(Step, "_mirrored", lambda step, rows: seen.append((rows, mirror(step, rows))) or seen[-1][1])  # type: ignore[func-returns-value]
    (stack,) = workload.stacks(Strategy("stack", places=3))
    by_epoch = []
    for position, member in enumerate(members):
        stack.enter(position, position, member)
    for _ in range(3):
        seen.clear()
        stack.launch()
        stack.land()
        flags = [{}, {}, {}]  # type: ignore[var-annotated]
        for rows, mirrored in seen:
            for model in range(3):
                flags[model] |= dict(zip(rows[model].tolist(), mirrored[model].tolist(), strict=True))
        by_epoch.append(flags)
    first, second, third = by_epoch
    (alias,) = aliases[1].values()
    assert first == third
    assert all(first[0][row] != second[0][row] for row in range(40))
    assert 10 < sum(first[0].values()) < 30
    assert first[1][alias] == first[0][3]
    assert all(first[1][row] == first[0][row] for row in range(40) if row != 3)
    assert any(first[2][row] != first[0][row] for row in range(21))


def train(data: Images, members: list[Member], recipe: Recipe = RECIPE) -> list[Trained]:
    outcomes = dict(train_many(spec_of(data, recipe), members, CPU))
    models = []
    for index in range(len(members)):
        outcome = outcomes[index]
        assert isinstance(outcome, Trained)
        models.append(outcome)
    return models


def test_model_depends_only_on_its_own_images() -> None:
    """Non-members may be replaced by noise, and other models may be trained in the same call."""
    data = images()
    rows = np.arange(0, 40, 2)
    pixels = data.train_images.copy()
    pixels[1::2] = np.random.default_rng(1).integers(0, 256, pixels[1::2].shape)
    other = replace(data, train_images=pixels)
    (alone,) = train(other, [Member(7, rows)])
    together = train(data, [Member(8, np.arange(1, 40, 2)), Member(7, rows)])[1]
    for name, values in alone.weights.items():
        np.testing.assert_array_equal(values, together.weights[name])
    assert alone.history == together.history
    expected = whitening(torch.from_numpy(data.train_images[rows]))
    np.testing.assert_array_equal(alone.weights["whiten.weight"], expected["whiten.weight"])


def test_smoothing_affects_only_the_training_loss() -> None:
    learning = CrossEntropy(Architecture("airbench", SHAPE, 4))
    data = images(8)
    workload = Workload(Spec(learning, RECIPE, data), resident(data, CPU), [Member(0, np.arange(8))], [{}])
    (stack,) = workload.stacks(Strategy("loop"))
    stack.enter(0, 0, workload.members[0])
    pixels, labels = stack.data.rows(torch.arange(8)[None])
    batch = Batch(pixels, labels, Mode(True, CounterRng(stack.keys, torch.zeros(1))))
    with torch.no_grad():
        log_p = learning.log_p(stack.tensors, pixels / 255, batch.mode)
        plain = -log_p.gather(2, labels[..., None])[..., 0]
        expected = 0.8 * plain - 0.2 * log_p.mean(2)
        torch.testing.assert_close(learning.losses(stack.tensors, batch), expected)
        evaluated, _ = learning.evaluate_rows(stack.tensors, replace(batch, mode=Mode()))
        log_p = learning.log_p(stack.tensors, pixels / 255, Mode())
        torch.testing.assert_close(evaluated, -log_p.gather(2, labels[..., None])[..., 0])


def test_stack_and_continued_training_equal_training_alone() -> None:
    data = images()
    recipe = replace(RECIPE, epochs=3, precision="float64")
    members = [Member(1, np.arange(21)), Member(2, np.arange(5, 35), {7: data.train_images[0]})]
    alone = [train(data, [member], recipe)[0] for member in members]
    with use_context(ComputeContext(way="stack")):
        together = train(data, members, recipe)
    for single, stacked in zip(alone, together, strict=True):
        for name, values in single.weights.items():
            np.testing.assert_allclose(stacked.weights[name], values, rtol=0, atol=1e-10 * max(1, np.abs(values).max()))
    (first,) = train(data, [replace(members[0], until=1, returns_state=True)], recipe)
    (last,) = train(data, [replace(members[0], start=first.state)], recipe)
    for name, values in alone[0].weights.items():
        np.testing.assert_array_equal(last.weights[name], values)
