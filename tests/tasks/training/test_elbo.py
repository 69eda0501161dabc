from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.models.counter_rng import CounterRng
from tasks.models.dequantisation import Binary
from tasks.models.layers import Mode
from tasks.models.vae import LATENT, Convolutional, Dense, celeba, cifar10, mnist
from tasks.training.elbo import Elbo
from tasks.training.objective import Batch, Objective
from tests.tasks.models.plain import Plain, stack

MODELS, ROWS = 3, 4
SMALL = Dense(Binary((6, 6, 1), padding=1), 3, (7, 5))
CELEBA, CIFAR10 = replace(celeba(), filters=2), replace(cifar10(), filters=2)
VAES = pytest.mark.parametrize("vae", [SMALL, mnist(), CELEBA, CIFAR10], ids=["small", "mnist", "celeba", "cifar10"])


def batch(vae: Dense | Convolutional, training: bool = True, real: Tensor | None = None) -> Batch:
    height, width, channels = vae.preparation.shape
    shape = (MODELS, ROWS, height * width * channels)
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    return Batch(
        pixels, torch.zeros(MODELS, ROWS, dtype=torch.int64), Mode(training, CounterRng(torch.arange(MODELS)), real)
    )


def learned(vae: Dense | Convolutional, tensors: dict[str, Tensor]) -> list[Tensor]:
    return [tensors[name].requires_grad_() for name, weight in vae.weights.items() if weight.learned]


def test_it_is_a_kind_of_learning() -> None:
    learning: Objective = Elbo(mnist())
    assert learning.total


@pytest.mark.parametrize("training", [True, False])
@VAES
def test_losses_and_slopes_are_those_of_plain_modules(vae: Dense | Convolutional, training: bool) -> None:
    tensors, given = stack(vae, MODELS), batch(vae, training)
    learning = Elbo(vae)
    weights = learned(vae, tensors)
    losses = learning.losses(tensors, given) if training else learning.evaluate_rows(tensors, given)[0]
    gradients = torch.autograd.grad(losses.sum(), weights)
    for m in range(MODELS):
        plain = Plain(vae).train(training)
        plain.start({name: tensor[m] for name, tensor in stack(vae, MODELS).items()})
        draws = CounterRng(torch.tensor([m]))
        x = vae.preparation.to_model_inputs(given.pixels[m : m + 1], draws, torch.float64, training)[0]
        expected = plain.bound(x, draws.normal(LATENT, (ROWS, vae.latent), torch.float64)[0])
        # Sums of 3,072 pixels' densities: up to 1e5 nats.
        torch.testing.assert_close(expected, losses[m], atol=1e-12, rtol=1e-14)
        expected.sum().backward()
        named = plain.named()
        names = [name for name, weight in vae.weights.items() if weight.learned]
        for name, gradient in zip(names, gradients, strict=True):
            theirs = named[name].grad
            assert theirs is not None
            torch.testing.assert_close(theirs, gradient[m], atol=1e-12 * max(1, float(theirs.abs().max())), rtol=0)
        for name in set(vae.weights) - set(names):
            torch.testing.assert_close(named[name], tensors[name][m], atol=1e-12, rtol=0)


def test_slopes_by_hand_are_autograds() -> None:
    for vae in (SMALL, mnist()):
        given, learning = batch(vae), Elbo(vae)
        tensors = stack(vae, MODELS)
        weights = learned(vae, tensors)
        shares = torch.tensor([1.0, 0.5, 2.0, 0.0], dtype=torch.float64)
        losses = learning.losses(tensors, given) @ shares
        expected = torch.autograd.grad(losses.sum(), weights)
        for m in range(MODELS):
            one = {name: tensor[m].detach() for name, tensor in tensors.items()}
            found = learning.manual_gradient(
                one, given.pixels[m], given.labels[m], shares, CounterRng(torch.tensor([m]))
            )
            assert found is not None
            torch.testing.assert_close(losses[m].detach(), found[0], atol=1e-11, rtol=1e-14)
            for theirs, mine in zip(expected, found[1], strict=True):
                torch.testing.assert_close(theirs[m], mine, atol=1e-11, rtol=0)


def test_only_autograd_knows_convolutions() -> None:
    one = {name: tensor[0] for name, tensor in stack(CELEBA, 1).items()}
    given, draws = batch(CELEBA), CounterRng(torch.tensor([1]))
    assert Elbo(CELEBA).manual_gradient(one, given.pixels[0], given.labels[0], torch.ones(ROWS), draws) is None


def test_assessing_keeps_the_statistics_and_classifies_nothing() -> None:
    vae = CELEBA
    tensors = stack(vae, MODELS)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    losses, right = Elbo(vae).evaluate_rows(tensors, batch(vae, training=False))
    assert right is None
    assert (MODELS, ROWS) == losses.shape
    assert all(torch.equal(before[name], tensor) for name, tensor in tensors.items())


def test_padding_bears_on_no_other_row() -> None:
    vae = CIFAR10
    real = torch.tensor([[1, 1, 1, 0]]).expand(MODELS, -1)
    given = batch(vae, real=real)
    other = Batch(torch.cat([given.pixels[:, :3], 255 - given.pixels[:, 3:]], 1), given.labels, given.mode)
    found = [Elbo(vae).losses(stack(vae, MODELS), part)[:, :3] for part in (given, other)]
    torch.testing.assert_close(*found, atol=1e-9, rtol=0)


def test_a_bound_without_draws_is_refused() -> None:
    given = batch(SMALL)
    with pytest.raises(ValueError, match="no draws"):
        Elbo(SMALL).losses(stack(SMALL, MODELS), Batch(given.pixels, given.labels, Mode()))
