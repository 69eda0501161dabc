"""Encoders of each kind against the module itself, and what is refused of their embeddings."""

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

SHAPE, ROWS = (16, 16, 3), 21
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
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated; its files are not gone
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def made() -> nn.Module:
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


def given(path: Path | str, interface: EncoderInterface = EncoderInterface()) -> encoders.LoadedEncoder:
    return encoders.load_encoder(pin(ModelFile(str(path))), SHAPE, interface)


def scripted(module: nn.Module, path: Path) -> Path:
    torch.jit.script(module).save(str(path))
    return path


@pytest.mark.parametrize("batch", [4, 256])
def test_a_scripted_encoder_gives_its_embeddings_whatever_is_asked_at_once(batch: int, tmp_path: Path) -> None:
    module = made()
    found = given(scripted(module, tmp_path / "e.pt"), EncoderInterface(batch=batch)).embed(images())
    assert (np.float32, (ROWS, 20)) == (found.dtype, found.shape)
    np.testing.assert_allclose(expected(module, inputs(images())), found, rtol=1e-5, atol=1e-6)


def test_an_exported_one_too(tmp_path: Path) -> None:
    module, rows = made(), torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(module, (inputs(images(4)),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "e.pt2")
    found = given(tmp_path / "e.pt2").embed(images())
    np.testing.assert_allclose(expected(module, inputs(images())), found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".safetensors"])
def test_a_factory_is_asked_for_no_classes(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given_encoder_net.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module, path = made(), tmp_path / f"w{suffix}"
    state = module.state_dict()
    if suffix == ".pt":
        torch.save(state, path)
    elif suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    else:
        pytest.importorskip("safetensors.torch").save_file(state, str(path))
    found = given(f"given_encoder_net:encoder+{path}").embed(images())
    np.testing.assert_allclose(expected(module, inputs(images())), found, rtol=1e-5, atol=1e-6)
    sys.modules.pop("given_encoder_net", None)


def test_one_of_timms_loses_its_classifier_and_needs_no_network(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    whole = timm.create_model("resnet10t", pretrained=False, num_classes=7).eval()
    torch.save(whole.state_dict(), tmp_path / "w.pt")
    found = given(f"timm:resnet10t+{tmp_path / 'w.pt'}").embed(images(3))
    with torch.no_grad():
        features = whole.forward_head(whole.forward_features(inputs(images(3))), pre_logits=True).numpy()
    assert found.shape == (3, 512)
    np.testing.assert_allclose(features, found, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"the weights do not fit timm's resnet14t: .*"):
        given(f"timm:resnet14t+{tmp_path / 'w.pt'}")
    with pytest.raises(ValueError, match=r"timm cannot make resnet1000: "):
        given(f"timm:resnet1000+{tmp_path / 'w.pt'}")


def test_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"w\.safetensors is not a valid \.safetensors: "):
        given(f"timm:resnet10t+{tmp_path / 'w.safetensors'}")


def test_images_are_normalised_and_laid_out_and_an_output_is_chosen(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = made()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": x.flatten(1), "features": self.inner(x.permute(0, 3, 1, 2))}

    path = scripted(Two(), tmp_path / "e.pt")
    asked = EncoderInterface(layout="nhwc", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), output="features")
    pixels = (inputs(images()) - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.2, 0.1])[
        :, None, None
    ]
    np.testing.assert_allclose(expected(made(), pixels), given(path, asked).embed(images()), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="it has 2 outputs: logits, features; set output to one of these names"):
        given(path, EncoderInterface(layout="nhwc"))


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
    ("module", "says"),
    [
        (Training(), "two embeddings of one image differ by"),
        (Infinite(), "returns embeddings that are not finite, for 21 of 21 images"),
        (One(), r"expected \(rows, d\); choose another output"),
    ],
)
def test_embeddings_that_do_not_serve_are_refused(module: nn.Module, says: str, tmp_path: Path) -> None:
    path = scripted(module, tmp_path / "e.pt")
    with pytest.raises(ValueError, match=says):
        given(path).embed(images())


def test_all_embeddings_have_as_many_numbers(tmp_path: Path) -> None:
    encoder = given(scripted(Widening(), tmp_path / "e.pt"))
    light, dark = np.full((2, *SHAPE), 255, np.uint8), np.zeros((2, *SHAPE), np.uint8)
    assert encoder.embed(light).shape == (2, 2)
    with pytest.raises(ValueError, match="returns embeddings of 3 numbers, but of 2 earlier"):
        encoder.embed(dark)


def test_images_of_another_shape_and_none_are_refused(tmp_path: Path) -> None:
    encoder = given(scripted(made(), tmp_path / "e.pt"))
    with pytest.raises(ValueError, match=r"expected uint8 \(n, 16 x 16 x 3\)"):
        encoder.embed(images()[:, :8])
    with pytest.raises(ValueError, match="there are no images to embed"):
        encoder.embed(images(0))
