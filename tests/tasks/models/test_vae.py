import math

import numpy as np
import pytest
import torch

from tasks.models.layers import Layers, initial
from tasks.models.likelihoods import Binary, Gaussian, Logit
from tasks.models.vae import Convolutional, Dense, celeba, cifar10, mnist
from tests.tasks.models.plain import Plain, stack


def test_fully_connected_network_has_published_sizes() -> None:
    shapes = {}
    for name, weight in mnist().weights.items():
        if name.endswith("weight"):
            shapes[name] = weight.shape
    assert list(shapes.values()) == [(512, 1024), (256, 512), (32, 256), (256, 16), (512, 256), (1024, 512)]


def test_width_scales_only_hidden_units() -> None:
    shapes = []
    for name, weight in mnist(width=0.5).weights.items():
        if name.endswith("weight"):
            shapes.append(weight.shape)
    assert shapes == [(256, 1024), (128, 256), (32, 128), (128, 16), (256, 128), (1024, 256)]
    assert mnist(width=1.0) == mnist()
    assert mnist().name == "fully connected autoencoder"
    assert mnist(width=0.5).name == "fully connected autoencoder of 256-128 units"


@pytest.mark.parametrize(("vae", "last"), [(cifar10(), 6), (celeba(), 3)])
def test_convolutional_networks_match_table_1(vae: Convolutional, last: int) -> None:
    shapes = {}
    for name, weight in vae.weights.items():
        if len(weight.shape) > 1:
            shapes[name] = weight.shape
    latent = vae.latent
    assert shapes == {
        "encoder1.weight": (32, 3, 4, 4),
        "encoder2.weight": (64, 32, 4, 4),
        "encoder3.weight": (128, 64, 4, 4),
        "encoder4.weight": (256, 128, 4, 4),
        "posterior.weight": (2 * latent, 1024),
        "decoder1.weight": (latent, 256, 2, 2),
        "decoder2.weight": (256, 128, 4, 4),
        "decoder3.weight": (128, 64, 4, 4),
        "decoder4.weight": (64, 32, 4, 4),
        "decoder5.weight": (32, last, 4, 4),
    }
    norms = {name.partition(".norm")[0] for name in vae.weights if "norm" in name}
    assert norms == {"encoder2", "encoder3", "encoder4", "decoder1", "decoder2", "decoder3", "decoder4"}
    assert {64: cifar10(), 32: celeba()}[latent] == vae


def test_single_scale_starts_at_log_variance_minus_two() -> None:
    assert initial(celeba().weights, 0)["decoder.log_variance"].tolist() == [-2]


def test_weights_and_biases_start_as_in_torch() -> None:
    start = initial(mnist().weights, 0)
    plain = Plain(mnist()).named()
    for name, values in start.items():
        fan_in = plain[name.replace("bias", "weight")].shape[1]
        assert np.abs(values).max() <= 1 / math.sqrt(fan_in)
        assert abs(values.std() - 1 / math.sqrt(3 * fan_in)) < 6 / math.sqrt(12 * fan_in * values.size)


def test_pixel_log_variances_are_at_least_minus_seven() -> None:
    vae = cifar10()
    layers = Layers({name: tensor * 50 for name, tensor in stack(vae, 1).items()})
    likelihood = vae.decode(layers, torch.randn(1, 4, 64, dtype=torch.float64))
    assert isinstance(likelihood, Gaussian)
    assert likelihood.log_variance.min() == -7


@pytest.mark.parametrize("vae", [Dense(Binary((4, 4, 1), padding=0), 2, (6, 5)), celeba(), cifar10()])
def test_stacked_models_encode_and_decode_as_alone(vae: Dense | Convolutional) -> None:
    tensors = stack(vae, 3)
    features = math.prod(vae.preparation.seen_shape)
    x = torch.randn(3, 2, features, dtype=torch.float64)
    means, log_variances = vae.encode(Layers(tensors), x)
    images = vae.decode(Layers(tensors), means).mean
    for m in range(3):
        plain = Plain(vae).eval()
        plain.start({name: tensor[m] for name, tensor in tensors.items()})
        mean, log_variance = plain.encoder(x[m]).chunk(2, 1)
        torch.testing.assert_close(mean, means[m], atol=1e-12, rtol=0)
        torch.testing.assert_close(log_variance, log_variances[m], atol=1e-12, rtol=0)
        decoded = plain.decoder(mean)[:, :features]
        decoded = decoded.sigmoid() if isinstance(vae, Dense) else decoded
        torch.testing.assert_close(decoded, images[m], atol=1e-12, rtol=0)


def test_sides_other_than_32_are_refused() -> None:
    with pytest.raises(ValueError, match="32 x 32, not 28 x 28"):
        Convolutional(Logit((28, 28, 3)), 64, False)
