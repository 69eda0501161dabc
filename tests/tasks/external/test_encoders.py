"""Encoders of each kind compared with the module itself, and refused embeddings."""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.external import encoders
from tasks.external.model_file import EncoderInterface, ModelFile, pin

SHAPE = (16, 16, 3)
ROWS = 21
SOURCE = """
from torch import nn

def encoder(shape, classes):
    assert classes == 0
    channels, _, _ = shape
    return nn.Sequential(nn.Conv2d(channels, 5, 3, 2), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated, but its files still exist
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def make_encoder() -> nn.Module:
    scope: dict[str, Callable[..., nn.Module]] = {}
    exec(SOURCE, scope)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = scope["encoder"]((3, 16, 16), 0)
        module(2 * torch.rand(16, 3, 16, 16) + 1)
    return module.eval()


def images(rows: int = ROWS) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (rows, *SHAPE), np.uint8)


def inputs(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def expected(module: nn.Module, pixels: Tensor) -> NDArray[np.float32]:
    with torch.no_grad():
        return module(pixels).flatten(1).numpy()


def load_encoder_file(path: Path | str, interface: EncoderInterface = EncoderInterface()) -> encoders.LoadedEncoder:
    return encoders.load_encoder(pin(ModelFile(str(path))), SHAPE, interface)


def scripted(module: nn.Module, path: Path) -> Path:
    torch.jit.script(module).save(str(path))
    return path


@pytest.mark.parametrize("batch", [4, 256])
def test_scripted_encoder_returns_embeddings_in_any_batch(batch: int, tmp_path: Path) -> None:
    module = make_encoder()
    embeddings = load_encoder_file(scripted(module, tmp_path / "e.pt"), EncoderInterface(batch=batch)).embed(images())
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (ROWS, 20)
    np.testing.assert_allclose(expected(module, inputs(images())), embeddings, rtol=1e-5, atol=1e-6)


def test_exported_encoder_returns_its_embeddings(tmp_path: Path) -> None:
    module = make_encoder()
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(module, (inputs(images(4)),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "e.pt2")
    embeddings = load_encoder_file(tmp_path / "e.pt2").embed(images())
    np.testing.assert_allclose(expected(module, inputs(images())), embeddings, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".safetensors"])
def test_factory_receives_no_classes(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given_encoder_net.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = make_encoder()
    path = tmp_path / f"w{suffix}"
    state = module.state_dict()
    if suffix == ".pt":
        torch.save(state, path)
    elif suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    else:
        pytest.importorskip("safetensors.torch").save_file(state, str(path))
    embeddings = load_encoder_file(f"given_encoder_net:encoder+{path}").embed(images())
    np.testing.assert_allclose(expected(module, inputs(images())), embeddings, rtol=1e-5, atol=1e-6)
    sys.modules.pop("given_encoder_net", None)


def test_timm_model_is_used_without_its_classifier(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    timm_model = timm.create_model("resnet10t", pretrained=False, num_classes=7).eval()
    torch.save(timm_model.state_dict(), tmp_path / "w.pt")
    embeddings = load_encoder_file(f"timm:resnet10t+{tmp_path / 'w.pt'}").embed(images(3))
    with torch.no_grad():
        features = timm_model.forward_head(timm_model.forward_features(inputs(images(3))), pre_logits=True).numpy()
    assert embeddings.shape == (3, 512)
    np.testing.assert_allclose(features, embeddings, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"the weights do not fit timm's resnet14t: .*"):
        load_encoder_file(f"timm:resnet14t+{tmp_path / 'w.pt'}")
    with pytest.raises(ValueError, match=r"timm cannot make resnet1000: "):
        load_encoder_file(f"timm:resnet1000+{tmp_path / 'w.pt'}")


def test_invalid_weights_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"w\.safetensors is not a valid \.safetensors: "):
        load_encoder_file(f"timm:resnet10t+{tmp_path / 'w.safetensors'}")


def test_encoder_interface_prepares_images_and_selects_output(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_encoder()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": x.flatten(1), "features": self.inner(x.permute(0, 3, 1, 2))}

    path = scripted(Two(), tmp_path / "e.pt")
    interface = EncoderInterface(layout="nhwc", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), output="features")
    pixels = (inputs(images()) - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.2, 0.1])[
        :, None, None
    ]
    np.testing.assert_allclose(
        expected(make_encoder(), pixels), load_encoder_file(path, interface).embed(images()), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(ValueError, match="it has 2 outputs: logits, features; set output to one of these names"):
        load_encoder_file(path, EncoderInterface(layout="nhwc"))


class Training(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) - x.flatten(1).mean(0)  # as batch norm in training does


class Infinite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1 / (x.flatten(1) - x.flatten(1)[:, :1])


class One(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 2, 3))


class Widening(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, : (2 if bool(x[0, 0, 0, 0] > 0.5) else 3)]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Training(), "two embeddings of one image differ by"),
        (Infinite(), "returns embeddings that are not finite, for 21 of 21 images"),
        (One(), r"expected \(rows, d\); choose another output"),
    ],
)
def test_unusable_embeddings_are_refused(module: nn.Module, message: str, tmp_path: Path) -> None:
    path = scripted(module, tmp_path / "e.pt")
    with pytest.raises(ValueError, match=message):
        load_encoder_file(path).embed(images())


def test_embeddings_must_have_one_length(tmp_path: Path) -> None:
    encoder = load_encoder_file(scripted(Widening(), tmp_path / "e.pt"))
    light = np.full((2, *SHAPE), 255, np.uint8)
    dark = np.zeros((2, *SHAPE), np.uint8)
    assert encoder.embed(light).shape == (2, 2)
    with pytest.raises(ValueError, match="returns embeddings of 3 numbers, but of 2 earlier"):
        encoder.embed(dark)


def test_images_of_other_shapes_are_refused(tmp_path: Path) -> None:
    encoder = load_encoder_file(scripted(make_encoder(), tmp_path / "e.pt"))
    with pytest.raises(ValueError, match=r"expected uint8 \(n, 16 x 16 x 3\)"):
        encoder.embed(images()[:, :8])
    with pytest.raises(ValueError, match="there are no images to embed"):
        encoder.embed(images(0))
