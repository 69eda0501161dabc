"""Embeddings by layer, their independence of the batch, and weights of another network."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tasks.contract.extras import TIMM
from tasks.self_supervised.networks import Network, convolution, encoder, initial_network, normalise, tensors
from tasks.self_supervised.pretraining import pretrain_encoder
from tasks.self_supervised.pretraining_config import RESNETS, TRANSFORMERS, EncoderConfig, Supervised, layer_features
from tasks.self_supervised.snapshots import Weights, weights_of
from tests.tasks.self_supervised.pictures import Blobs, config

CPU = torch.device("cpu")
SMALL = EncoderConfig("small-resnet#4", (8, 6), 32)
IMAGES = Blobs().pixels


def weights(config: EncoderConfig, classes: int = 0, seed: int = 0) -> Weights:
    result = {}
    for name, tensor in tensors(initial_network(config, classes, seed)).items():
        result[name] = tensor.numpy().copy()
    return result


def test_layers_are_backbone_and_projector_layers() -> None:
    model = encoder(SMALL, weights(SMALL), CPU)
    assert model.depth == 2
    embeddings = model.embed(IMAGES[:5], [0, 1, 2])
    assert tuple(embeddings[0].shape) == (5, 16)
    assert tuple(embeddings[1].shape) == (5, 8)
    assert tuple(embeddings[2].shape) == (5, 6)
    network = initial_network(SMALL, 0, 0).eval()
    with torch.no_grad():
        inside = network.backbone(normalise(torch.from_numpy(IMAGES[:5]).permute(0, 3, 1, 2).float() / 255))
        torch.testing.assert_close(inside, embeddings[0])
        torch.testing.assert_close(network.projector(inside), embeddings[2])
    assert (embeddings[1] >= 0).all()
    with pytest.raises(ValueError, match=r"layer is 3; this encoder has the layers 0 \(backbone\) to 2"):
        model.embed(IMAGES[:5], [3])


def test_embedding_depends_on_neither_batch_nor_torch_state() -> None:
    model = encoder(SMALL, weights(SMALL), CPU)
    torch.manual_seed(5)
    embeddings = model.embed(np.concatenate([IMAGES, IMAGES]), [0, 2])
    torch.manual_seed(6)
    assert len(embeddings[2]) == 240
    assert torch.equal(embeddings[2][:7], model.embed(IMAGES[:7], [2])[2])
    assert torch.equal(embeddings[0][200:], model.embed(np.concatenate([IMAGES, IMAGES]), [0])[0][200:])
    assert tuple(model.embed(IMAGES[:0], [2])[2].shape) == (0, 6)


def test_last_layer_of_supervised_model_is_logits() -> None:
    setting = config(Supervised(), epochs=1)
    trained_weights = weights_of(pretrain_encoder(setting, Blobs()), 0)
    model = encoder(setting, trained_weights, CPU)
    assert model.depth == 3
    assert tuple(model.embed(IMAGES[:4, :16, :16], [3])[3].shape) == (4, 3)


def test_weights_of_another_network_are_refused() -> None:
    other_config = EncoderConfig("small-resnet#4", (8, 7), 32)
    with pytest.raises(ValueError, match=r"weights of small-resnet#4 .*: projector.1.weight is \(6, 8\), not \(7, 8\)"):
        encoder(other_config, weights(SMALL), CPU)
    with pytest.raises(ValueError, match=r"backbone\.blocks\.0\.conv1\.weight is absent"):
        encoder(SMALL, {name: values for name, values in weights(SMALL).items() if "blocks" not in name}, CPU)


def test_transformers_without_timm_name_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match=re.escape(f"needs {TIMM.advice}")):
        initial_network(EncoderConfig("vit-ti", (4,), 32), 0, 0)


@pytest.mark.parametrize(
    ("backbone", "millions", "features"),
    [("resnet18", 11.18, 512), ("resnet50", 23.51, 2048), ("vit-ti", 5.53, 192), ("small-resnet", 0.307, 128)],
)
def test_backbones_have_the_published_sizes(backbone: str, millions: float, features: int) -> None:
    network = initial_network(EncoderConfig(backbone, (1,), 224), 0, 0)
    assert millions == pytest.approx(sum(weight.numel() for weight in network.backbone.parameters()) / 1e6, rel=0.01)
    last: Any = network.projector[0]
    assert features == last.in_features


@pytest.mark.parametrize("before", [3, 4, 8])
def test_shortcut_equals_strided_convolution_with_gradients(before: int) -> None:
    layer = convolution(before, 6, 1, 2).double()
    x = torch.linspace(-1, 1, 2 * before * 49, dtype=torch.float64).reshape(2, before, 7, 7)
    actual = list[torch.Tensor]()
    expected = list[torch.Tensor]()
    for results, convolve in ((actual, layer), (expected, lambda x: functional.conv2d(x, layer.weight, stride=2))):
        images = x.clone().requires_grad_()
        layer.weight.grad = None
        places = convolve(images)
        places.square().sum().backward()
        results += [places.detach(), images.grad, layer.weight.grad]
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*RESNETS, *TRANSFORMERS, "small-resnet", "small-resnet#8"])
def test_layer_features_are_those_of_the_network(name: str) -> None:
    if name in TRANSFORMERS:
        pytest.importorskip("timm")
    config = EncoderConfig(name, (48, 16), 32)
    with torch.device("meta"):
        network = Network(config)
    assert [layer_features(config, layer) for layer in range(3)] == [network.features, 48, 16]
