"""Autoencoders, alone and mixed with a broad density: losses, gradients, log p, and the score of an outlier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.models.catalog import DensityModel
from tasks.models.counter_rng import CounterRng
from tasks.models.importance import Sampling, model_inputs
from tasks.models.layers import Layers, Mode
from tasks.models.likelihoods import Binary
from tasks.models.vae import LATENT, Convolutional, Dense, celeba, cifar10, mnist
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining
from tasks.training.density_objective import KEPT, Elbo, OutlierMixture, generative
from tasks.training.members import Member, Spec, Trained
from tasks.training.objective import Batch, Objective
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.models.plain import Plain, stack

MODELS = 3
ROWS = 4
SMALL = Dense(Binary((6, 6, 1), padding=1), 3, (7, 5))
CELEBA = replace(celeba(), filters=2)
CIFAR10 = replace(cifar10(), filters=2)
VAES = pytest.mark.parametrize("vae", [SMALL, mnist(), CELEBA, CIFAR10], ids=["small", "mnist", "celeba", "cifar10"])


def batch(vae: Dense | Convolutional, training: bool = True, real: Tensor | None = None) -> Batch:
    height, width, channels = vae.preparation.shape
    shape = (MODELS, ROWS, height * width * channels)
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    return Batch(
        pixels, torch.zeros(MODELS, ROWS, dtype=torch.int64), Mode(training, CounterRng(torch.arange(MODELS)), real)
    )


def learned(vae: Dense | Convolutional, tensors: dict[str, Tensor]) -> list[Tensor]:
    result = []
    for name, weight in vae.weights.items():
        if weight.learned:
            result.append(tensors[name].requires_grad_())
    return result


def test_elbo_is_an_objective() -> None:
    learning: Objective = Elbo(mnist())
    assert learning.total


@pytest.mark.parametrize("training", [True, False])
@VAES
def test_losses_and_gradients_equal_plain_modules(vae: Dense | Convolutional, training: bool) -> None:
    tensors = stack(vae, MODELS)
    data = batch(vae, training)
    learning = Elbo(vae)
    weights = learned(vae, tensors)
    if training:
        losses = learning.losses(tensors, data)
    else:
        losses = learning.evaluate_rows(tensors, data)[0]
    gradients = torch.autograd.grad(losses.sum(), weights)
    for m in range(MODELS):
        plain = Plain(vae).train(training)
        plain.start({name: tensor[m] for name, tensor in stack(vae, MODELS).items()})
        draws = CounterRng(torch.tensor([m]))
        x = vae.preparation.to_model_inputs(data.pixels[m : m + 1], draws, torch.float64, training)[0]
        expected = plain.bound(x, draws.normal(LATENT, (ROWS, vae.latent), torch.float64)[0])
        # Sums of 3,072 pixels' densities: up to 1e5 nats.
        torch.testing.assert_close(expected, losses[m], atol=1e-12, rtol=1e-14)
        expected.sum().backward()
        parameters = plain.named()
        names = [name for name, weight in vae.weights.items() if weight.learned]
        for name, gradient in zip(names, gradients, strict=True):
            reference = parameters[name].grad
            assert reference is not None
            torch.testing.assert_close(
                reference, gradient[m], atol=1e-12 * max(1, float(reference.abs().max())), rtol=0
            )
        for name in set(vae.weights) - set(names):
            torch.testing.assert_close(parameters[name], tensors[name][m], atol=1e-12, rtol=0)


def test_manual_gradients_equal_autograd() -> None:
    for vae in (SMALL, mnist()):
        data = batch(vae)
        learning = Elbo(vae)
        tensors = stack(vae, MODELS)
        weights = learned(vae, tensors)
        shares = torch.tensor([1.0, 0.5, 2.0, 0.0], dtype=torch.float64)
        losses = learning.losses(tensors, data) @ shares
        expected = torch.autograd.grad(losses.sum(), weights)
        for m in range(MODELS):
            one = {name: tensor[m].detach() for name, tensor in tensors.items()}
            manual = learning.manual_gradient(
                one, data.pixels[m], data.labels[m], shares, CounterRng(torch.tensor([m]))
            )
            assert manual is not None
            torch.testing.assert_close(losses[m].detach(), manual[0], atol=1e-11, rtol=1e-14)
            for reference, gradient in zip(expected, manual[1], strict=True):
                torch.testing.assert_close(reference[m], gradient, atol=1e-11, rtol=0)


def test_convolutions_have_no_manual_gradient() -> None:
    one = {name: tensor[0] for name, tensor in stack(CELEBA, 1).items()}
    data = batch(CELEBA)
    draws = CounterRng(torch.tensor([1]))
    assert Elbo(CELEBA).manual_gradient(one, data.pixels[0], data.labels[0], torch.ones(ROWS), draws) is None


def test_evaluation_keeps_statistics_and_has_no_accuracy() -> None:
    vae = CELEBA
    tensors = stack(vae, MODELS)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    losses, right = Elbo(vae).evaluate_rows(tensors, batch(vae, training=False))
    assert right is None
    assert losses.shape == (MODELS, ROWS)
    assert all(torch.equal(before[name], tensor) for name, tensor in tensors.items())


def test_padding_affects_no_other_row() -> None:
    vae = CIFAR10
    real = torch.tensor([[1, 1, 1, 0]]).expand(MODELS, -1)
    data = batch(vae, real=real)
    changed_padding = Batch(torch.cat([data.pixels[:, :3], 255 - data.pixels[:, 3:]], 1), data.labels, data.mode)
    losses = [Elbo(vae).losses(stack(vae, MODELS), part)[:, :3] for part in (data, changed_padding)]
    torch.testing.assert_close(*losses, atol=1e-9, rtol=0)


def test_bound_without_draws_is_refused() -> None:
    data = batch(SMALL)
    with pytest.raises(ValueError, match="a bound requires a draw"):
        Elbo(SMALL).losses(stack(SMALL, MODELS), Batch(data.pixels, data.labels, Mode()))


F64 = torch.float64
MIXED = pytest.mark.parametrize("vae", [SMALL, CIFAR10], ids=["small", "cifar10"])
NOWHERE = 1e-300  # a share


def contaminated(vae: Dense | Convolutional, share: float) -> OutlierMixture:
    height, width, channels = vae.preparation.shape
    pixels = np.random.default_rng(5).integers(0, 256, (8, height, width, channels), dtype=np.uint8)
    return OutlierMixture(Elbo(vae), share, pixels)


def level(vae: Dense | Convolutional, tensors: Mapping[str, Tensor]) -> OutlierMixture:
    """A mixture whose broad density is scaled so that both components are equally likely for the first image."""
    learning = contaminated(vae, 0.5)
    data = batch(vae)
    broad = learning.broad.log_p
    x = learning.learned.model_inputs(data, F64)
    apart = (-learning.learned.losses(tensors, data) - broad(x))[0, 0].detach()
    learning.broad.log_p = lambda x: broad(x) + apart
    return learning


def test_outlier_share_selects_mixture() -> None:
    images = load(Dataset("digits"))
    assert isinstance(generative(DensityModel("vae"), images), Elbo)
    assert isinstance(generative(DensityModel("vae"), images, 0.1), OutlierMixture)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_invalid_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        contaminated(SMALL, share)


@MIXED
def test_mixture_of_negligible_share_equals_autoencoder(vae: Dense | Convolutional) -> None:
    learning = contaminated(vae, NOWHERE)
    tensors = stack(vae, MODELS)
    for data in (batch(vae), batch(vae, training=False)):
        torch.testing.assert_close(
            learning.learned.losses(stack(vae, MODELS), data),
            learning.losses(stack(vae, MODELS), data),
            atol=1e-11,
            rtol=1e-14,
        )
    pixels = batch(vae).pixels[0]
    rows = torch.arange(ROWS)
    members = torch.arange(MODELS)
    expected = learning.learned.estimate_log_density(tensors, pixels, rows, members, Sampling(5)).log_p
    estimate = learning.estimate_log_density(tensors, pixels, rows, members, Sampling(5))
    torch.testing.assert_close(expected, estimate.log_p)


def test_loss_of_known_numbers() -> None:
    learning = contaminated(SMALL, 0.25)
    bounds = -torch.tensor([0.2, 0.02], dtype=F64).log()
    broad = torch.tensor([0.4, 0.6], dtype=F64).log()
    losses, gradients = learning._losses(bounds, broad)
    # 0.75 * 0.2 + 0.25 * 0.4 = 0.25, of which the autoencoder has 0.15; 0.75 * 0.02 + 0.25 * 0.6 = 0.165, and 0.015.
    mixed = [0.25, 0.165]
    autoencoder = [0.15, 0.015]
    for index in range(2):
        expected = -KEPT * math.log(autoencoder[index]) - (1 - KEPT) * math.log(mixed[index])
        assert expected == pytest.approx(float(losses[index]))
        assert KEPT + (1 - KEPT) * autoencoder[index] / mixed[index] == pytest.approx(float(gradients[index]))


@MIXED
def test_gradients_of_mixture_equal_autograd_of_formula(vae: Dense | Convolutional) -> None:
    tensors = stack(vae, MODELS)
    data = batch(vae)
    learning = level(vae, stack(vae, MODELS))
    weights = [tensors[name].requires_grad_() for name, weight in vae.weights.items() if weight.learned]
    losses = learning.losses(tensors, data)
    actual = torch.autograd.grad(losses.sum(), weights)
    bounds = learning.learned.losses(tensors, data)
    broad = learning.broad.log_p(learning.learned.model_inputs(data, F64))
    apart = bounds - math.log(0.5)
    formula = KEPT * apart - (1 - KEPT) * torch.logsumexp(torch.stack([-apart, math.log(0.5) + broad]), 0)
    torch.testing.assert_close(formula, losses)
    assert pytest.approx(float(learning._losses(bounds, broad)[1][0, 0].detach())) == KEPT + (1 - KEPT) / 2
    expected = torch.autograd.grad(formula.sum(), weights)
    for reference, gradient in zip(expected, actual, strict=True):
        torch.testing.assert_close(reference, gradient, atol=1e-9 * max(1, float(reference.abs().max())), rtol=0)


def test_manual_gradients_of_mixture_equal_autograd() -> None:
    data = batch(SMALL)
    shares = torch.tensor([1.0, 0.5, 2.0, 0.0], dtype=F64)
    tensors = stack(SMALL, MODELS)
    learning = level(SMALL, tensors)
    weights = [tensor.requires_grad_() for tensor in tensors.values()]
    losses = learning.losses(tensors, data) @ shares
    expected = torch.autograd.grad(losses.sum(), weights)
    for m in range(MODELS):
        one = {name: tensor[m].detach() for name, tensor in tensors.items()}
        manual = learning.manual_gradient(one, data.pixels[m], data.labels[m], shares, CounterRng(torch.tensor([m])))
        assert manual is not None
        torch.testing.assert_close(losses[m].detach(), manual[0], atol=1e-11, rtol=1e-14)
        for reference, gradient in zip(expected, manual[1], strict=True):
            torch.testing.assert_close(reference[m], gradient, atol=1e-11, rtol=0)


@pytest.mark.parametrize("afresh", [True, False])
@MIXED
def test_mixture_log_p_combines_both_densities(vae: Dense | Convolutional, afresh: bool) -> None:
    tensors = stack(vae, MODELS)
    sampling = Sampling(5, seed=2, afresh=afresh)
    pixels = batch(vae).pixels[0]
    rows = torch.tensor([3, 1, 40, 7])
    members = torch.arange(MODELS)
    learning = contaminated(vae, 0.3)
    autoencoder = learning.learned.estimate_log_density(tensors, pixels, rows, members, sampling).log_p
    x = model_inputs(vae.preparation, pixels, rows, members, sampling, F64)
    broad = learning.broad.log_p(x) + vae.preparation.to_pixels(x)
    expected = torch.logsumexp(
        torch.stack([math.log(0.7) + autoencoder, (math.log(0.3) + broad).expand_as(autoencoder)]), 0
    )
    torch.testing.assert_close(expected, learning.estimate_log_density(tensors, pixels, rows, members, sampling).log_p)


def test_loss_is_bound_on_log_p() -> None:
    tensors = stack(SMALL, 1)
    draws = 2000
    image = torch.from_numpy(np.random.default_rng(1).integers(0, 2, (1, 36), dtype=np.uint8) * 255)
    learning = contaminated(SMALL, 0.5)
    x = SMALL.preparation.to_model_inputs(
        image[None], CounterRng(torch.tensor([0])), F64
    )  # 0 and 255 are always binarised to 0 and 1
    layers = Layers(tensors)
    bound = learning.learned.negative_bounds(layers, x.expand(1, draws, -1), CounterRng(torch.tensor([3]))).mean()
    loss, _ = learning._losses(bound[None], learning.broad.log_p(x)[0])
    log_p = learning.estimate_log_density(tensors, image, torch.tensor([0]), torch.tensor([1]), Sampling(4096)).log_p
    assert -float(loss) <= float(log_p)


def stacked(spec: Spec, members: Sequence[Member], way: str) -> list[Trained]:
    with use_context(ComputeContext(way=way)):  # type: ignore[arg-type]
        outcomes = dict(train_many(spec, members, torch.device("cpu")))
    models = [outcomes[index] for index in range(len(members))]
    assert all(isinstance(model, Trained) for model in models), models
    return models  # type: ignore[return-value]


@MIXED
def test_stack_trains_as_loop(vae: Dense | Convolutional) -> None:
    stream = np.random.default_rng(0)
    shape = vae.preparation.shape
    split = []
    for count in (40, 10):
        split.append(stream.integers(0, 256, (count, *shape), dtype=np.uint8))
    images = Images(split[0], np.zeros(40, np.int64), split[1], np.zeros(10, np.int64), 1)
    learning = OutlierMixture(Elbo(vae), 0.3, images.test_images)
    spec = Spec(learning, Recipe(2, 16, 1e-3, epsilon=1e-8, precision="float64"), images)
    members = [Member(seed, np.arange(40)) for seed in range(3)]
    for one, many in zip(stacked(spec, members, "loop"), stacked(spec, members, "stack"), strict=True):
        for name in learning.weights:
            np.testing.assert_allclose(one.weights[name], many.weights[name], atol=1e-7)
        for single_epoch, stacked_epoch in zip(one.history, many.history, strict=True):
            assert single_epoch.train_loss == pytest.approx(stacked_epoch.train_loss)
            assert single_epoch.validation_loss == pytest.approx(stacked_epoch.validation_loss)


def score_of_noise(learning: Elbo | OutlierMixture, images: Images) -> tuple[float, float]:
    """The gain in log p of image 0 from training on it, and the mean log p of the other images."""
    log_p: dict[int, Tensor] = {}
    pixels = torch.from_numpy(images.train_images.reshape(len(images.train_images), -1).copy())
    epochs = 20
    rows = torch.arange(len(pixels))

    def watch(evaluations: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]) -> None:
        for index, epoch in evaluations:
            if epoch == epochs:
                estimated = learning.estimate_log_density(tensors, pixels, rows, torch.tensor([7]), Sampling(8))
                log_p[index] = estimated.log_p[0]

    members = [Member(1, rows.numpy()), Member(2, rows.numpy()[1:])]
    stacked(Spec(learning, Recipe(epochs, 8, 2e-3, epsilon=1e-8), images, watch), members, "loop")
    return float(log_p[0][0] - log_p[1][0]), float(log_p[0][1:].mean())


def test_outlier_component_prevents_memorising_noise() -> None:
    digits = load(Dataset("digits"))
    train = digits.train_images[:160].copy()
    train[0] = np.random.default_rng(0).integers(0, 2, train[0].shape, dtype=np.uint8) * 255
    images = replace(digits, train_images=train, train_labels=digits.train_labels[:160].copy())
    vae = Elbo(Dense(Binary(images.shape), 16, (128, 64)))
    (score, typical), (outlier_score, outlier_typical) = (
        score_of_noise(learning, images) for learning in (vae, OutlierMixture(vae, 0.05, images.test_images))
    )
    assert score > 30
    assert abs(outlier_score) < 1
    # The other images lose at most 10 nats, and the model learns: the broad density gives digits -496 nats.
    assert outlier_typical > typical - 10


def test_training_task_uses_outlier_share() -> None:
    plain = DensityTraining(Dataset("digits"), examples=60, epochs=2, recorded=(2,), samples=4)
    tables = [fit(replace(plain, outliers=share), []) for share in (0.0, NOWHERE, 0.5)]
    log_p = [np.array(table.column("log_p")[-1].as_py()) for table in tables]
    np.testing.assert_allclose(log_p[0], log_p[1], rtol=1e-4)
    assert np.abs(log_p[0] - log_p[2]).min() > 0.1
