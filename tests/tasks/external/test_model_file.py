"""Models as files: names, pinning and identity."""

import hashlib
import shutil
from pathlib import Path

import pytest
import torch

from orchestrator.errors import EngramError, SpecError
from orchestrator.planning.identity import canonical
from orchestrator.spec.fields import coerce
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.external.model_file import Interface, ModelFile, content, pin
from tasks.models.custom import Factory

DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("m.pt", "torchscript", "m.pt"),
        ("/at@home/a+b/m.pt2", "export", "/at@home/a+b/m.pt2"),
        ("m.onnx", "onnx", "m.onnx"),
        ("package.module:make+/a+b/w.npz", "factory", "/a+b/w.npz"),
        ("timm:vit_small_patch16_224.dino+/a+b/w.safetensors", "timm", "/a+b/w.safetensors"),
        ("package.module:make+/a+b/last.ckpt", "factory", "/a+b/last.ckpt"),
        ("transformers:/a+b/vit", "transformers", "/a+b/vit"),
    ],
)
def test_model_name_is_parsed_by_its_file(name: str, kind: str, path: str) -> None:
    for text, digest in ((name, ""), (f"{name}@{DIGEST}", DIGEST)):
        model = ModelFile.parse(text)
        assert ModelFile(name, digest) == model
        assert kind == model.kind
        assert path == model.path
        assert text == str(model)
    assert (Factory("package.module", "make") if kind == "factory" else None) == model.factory


@pytest.mark.parametrize(
    "name",
    [
        "model",
        "m.pkl",
        "m.pt@123",
        "package.module:make+w.onnx",
        "module:make",
        "timm:resnet50+w.onnx",
        "timm:resnet50",
        "w.safetensors",
        "last.ckpt",
        "transformers:",
    ],
)
def test_invalid_model_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="model is "):
        coerce(name, ModelFile, "given")


def test_identity_is_content_not_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.onnx").write_bytes(b"weights")
    monkeypatch.chdir(tmp_path)
    here = pin(ModelFile("a/m.onnx"))
    copy = pin(ModelFile("b/m.onnx"))
    assert ModelFile(str(tmp_path / "a" / "m.onnx"), hashlib.sha256(b"weights").hexdigest()) == here
    assert here.identity() == copy.identity()
    assert canonical(here) == {"identity": here.digest}
    assert content(here) == b"weights"
    assert here == pin(ModelFile.parse(str(here)))
    with pytest.raises(ValueError, match="no digest yet; pin it before planning"):
        ModelFile("a/m.onnx").identity()
    (tmp_path / "a" / "m.onnx").write_bytes(b"others")
    for check in (pin, content):
        with pytest.raises(ValueError, match=r"m\.onnx is not the one that was pinned: its content has digest "):
            check(here)


def test_factory_identity_covers_source_function_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "given_source.py"
    weights = tmp_path / "w.pt"
    source.write_text("one = two = None\n")
    torch.save({"w": torch.zeros(2)}, weights)
    monkeypatch.syspath_prepend(str(tmp_path))
    first = pin(ModelFile(f"given_source:one+{weights}"))
    assert first == pin(first)
    second = pin(ModelFile(f"given_source:two+{weights}"))
    source.write_text("one = two = 1\n")
    third = pin(ModelFile(f"given_source:one+{weights}"))
    torch.save({"w": torch.ones(2)}, weights)
    fourth = pin(ModelFile(f"given_source:one+{weights}"))
    assert len({model.identity() for model in (first, second, third, fourth)}) == 4
    with pytest.raises(ValueError, match="there is no module 'no_such_source'"):
        pin(ModelFile(f"no_such_source:one+{weights}"))


def test_models_of_a_config_are_pinned(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"weights")
    model = ModelFile(str(tmp_path / "m.onnx"))
    (cell,) = pin_cells([Cell("audit", (model,), None, {})], {})
    assert (pin(model),) == cell.config
    with pytest.raises(EngramError, match="there is no file"):
        pin_cells([Cell("audit", (ModelFile(str(tmp_path / "n.onnx")),), None, {})], {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gives": "scores"}, "gives is 'scores'"),
        ({"layout": "hwc"}, "layout is 'hwc'"),
        ({"mean": (0.5,)}, "mean has 1 numbers and std 0"),
        ({"mean": (0.5,), "std": (0.0,)}, "std is "),
        ({"mean": (float("nan"),), "std": (1.0,)}, "mean is "),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
    ],
)
def test_invalid_interface_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Interface(**fields)  # type: ignore[arg-type]


def test_timm_identity_covers_network_and_content(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(2)}, tmp_path / "a.pt")
    shutil.copy(tmp_path / "a.pt", tmp_path / "b.pt")
    one, same, other_network = (
        pin(ModelFile(f"timm:{network}+{tmp_path / file}")).identity()
        for network, file in (("resnet10t", "a.pt"), ("resnet10t", "b.pt"), ("resnet14t", "a.pt"))
    )
    assert one == same
    assert len({one, other_network, hashlib.sha256((tmp_path / "a.pt").read_bytes()).hexdigest()}) == 3
    assert pin(ModelFile(f"timm:resnet10t+{tmp_path / 'a.pt'}")).name == f"timm:resnet10t+{tmp_path / 'a.pt'}"
    assert ModelFile("timm:resnet10t+a.pt") == ModelFile("timm:resnet10t+/home/ann/a.pt").named()
