"""Folders of transformers' image classifiers compared with transformers' own processor and model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tasks.audits.deja_vu.encoder_config import EncoderFile
from tasks.external import loading
from tasks.external.file_contents import folder_normalisation
from tasks.external.model_file import Interface, ModelFile, pin
from tests.support.shell import Here

SHAPE = (16, 16, 3)
CLASSES = 5
FEW = ("given.label=3", "probes=5", "family.count=9", "--address", "none")
MEAN = [0.5, 0.4, 0.3]
STD = [0.2, 0.25, 0.5]


def save_classifier(folder: Path, shard_size: str = "1GB", **preprocessor: Any) -> Any:
    """A small vision transformer with random weights, saved by transformers in shards of this size."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        num_labels=CLASSES,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ViTForImageClassification(config).eval()
    model.save_pretrained(folder, max_shard_size=shard_size)
    if preprocessor:
        (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return model


def images() -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (7, *SHAPE), np.uint8)


def log_p(model: Any, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    with torch.no_grad():
        logits = model(torch.from_numpy(scaled.transpose(0, 3, 1, 2).astype(np.float32))).logits
    return logits.double().log_softmax(1).numpy()


@pytest.mark.parametrize(
    ("preprocessor", "factor", "mean", "std"),
    [
        ({}, 1 / 255, 0.0, 1.0),
        ({"do_normalize": True, "image_mean": MEAN, "image_std": STD}, 1 / 255, MEAN, STD),
        ({"do_rescale": False, "do_normalize": True, "image_mean": [120.0], "image_std": [60.0]}, 1, 120, 60),
        ({"do_rescale": True, "rescale_factor": 2 / 255, "do_normalize": False}, 2 / 255, 0.0, 1.0),
    ],
)
def test_folder_applies_its_preprocessor(
    preprocessor: dict[str, Any], factor: float, mean: Any, std: Any, tmp_path: Path
) -> None:
    model = save_classifier(tmp_path, **preprocessor)
    answers = loading.log_probabilities(pin(ModelFile(f"transformers:{tmp_path}")), images(), classes=CLASSES)
    expected = log_p(model, (images() * factor - np.array(mean)) / np.array(std))
    np.testing.assert_allclose(answers.log_p, expected, rtol=0, atol=1e-4)


def test_interface_overrides_the_preprocessor(tmp_path: Path) -> None:
    model = save_classifier(tmp_path, do_normalize=True, image_mean=MEAN, image_std=STD)
    interface = Interface(mean=(0.1,), std=(0.5,))
    answers = loading.log_probabilities(ModelFile(f"transformers:{tmp_path}"), images(), interface, CLASSES)
    np.testing.assert_allclose(answers.log_p, log_p(model, (images() / 255 - 0.1) / 0.5), rtol=0, atol=1e-4)


def test_folder_is_pinned_by_its_model_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_classifier(tmp_path / "vit", do_normalize=True, image_mean=MEAN, image_std=STD)
    monkeypatch.chdir(tmp_path)
    model = pin(ModelFile("transformers:vit"))
    assert model.name == f"transformers:{tmp_path / 'vit'}"
    assert {path.name for path in model.paths()} == {"config.json", "model.safetensors", "preprocessor_config.json"}
    (tmp_path / "vit" / "README.md").write_text("of no account")
    assert model == pin(ModelFile.parse(str(model)))
    (tmp_path / "vit" / "preprocessor_config.json").unlink()
    for check in (pin, lambda model: loading.load_model(model, SHAPE)):
        with pytest.raises(ValueError, match="vit is not the one that was pinned: its content has digest "):
            check(model)


def test_sharded_folder_returns_model_outputs(tmp_path: Path) -> None:
    model = save_classifier(tmp_path / "vit", shard_size="6KB")
    shards = sorted(path.name for path in (tmp_path / "vit").glob("model-*.safetensors"))
    assert len(shards) > 1
    pinned = pin(ModelFile(f"transformers:{tmp_path / 'vit'}"))
    assert {path.name for path in pinned.paths()} == {"config.json", "model.safetensors.index.json", *shards}
    answers = loading.log_probabilities(pinned, images(), classes=CLASSES)
    np.testing.assert_allclose(answers.log_p, log_p(model, images() / 255), rtol=0, atol=1e-4)
    settings = (f"given.models={pinned.name}", "given.shape=16,16,3", "probe=digits#16x16#rgb", "feature=words:A")
    engram = Here(tmp_path)
    run = engram.json("run", "unique_feature", *settings, *FEW)["run"]
    assert engram.json("results", run)
    (tmp_path / "vit" / shards[0]).write_bytes(b"")
    assert f"{shards[0]} is not a valid .safetensors" in engram("plan", "unique_feature", *settings, code=2).stderr


@pytest.mark.parametrize("shard_size", ["1GB", "6KB"])
@pytest.mark.parametrize("wrap", [lambda name: f"_orig_mod.{name}", lambda name: f"module.{name}"])
def test_wrapped_model_folder_returns_model_outputs(
    wrap: Callable[[str], str], shard_size: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    model = save_classifier(tmp_path, shard_size=shard_size)
    for file in tmp_path.glob("*.safetensors"):
        save_file({wrap(name): value for name, value in load_file(file).items()}, file, {"format": "pt"})
    index = tmp_path / "model.safetensors.index.json"
    if index.exists():
        index_content = json.loads(index.read_text())
        index_content["weight_map"] = {wrap(name): file for name, file in index_content["weight_map"].items()}
        index.write_text(json.dumps(index_content))
    answers = loading.log_probabilities(pin(ModelFile(f"transformers:{tmp_path}")), images(), classes=CLASSES)
    np.testing.assert_allclose(answers.log_p, log_p(model, images() / 255), rtol=0, atol=1e-4)


def test_folders_without_image_classifier_are_refused(tmp_path: Path) -> None:
    model = ModelFile(f"transformers:{tmp_path}")
    save_classifier(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        (
            {"architectures": ["ViTModel"]},
            "lists the architectures ViTModel; expected an image classifier of transformers",
        ),
        ({"architectures": None}, "lists the architectures none; expected an image classifier"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            pin(model)
    for change, message in (
        ({"num_hidden_layers": 2}, "lacks 16 of its weights, such as "),
        ({"model_type": "none-such"}, "cannot be read by transformers: "),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message) as refused:
            loading.load_model(pin(model), SHAPE)
        assert "\n" not in str(refused.value)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"its config\.json is not a JSON object"):
        pin(model)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"there is no file .*model\.safetensors"):
        pin(model)
    with pytest.raises(ValueError, match="an image classifier without embeddings"):
        EncoderFile(model)


@pytest.mark.parametrize(
    "preprocessor",
    [{"image_mean": [0.5]}, {"image_mean": [0.5], "image_std": [0]}, {"rescale_offset": True}, {"image_mean": "a"}],
)
def test_unsupported_preprocessor_is_refused(preprocessor: dict[str, Any]) -> None:
    files = {"preprocessor_config.json": json.dumps(preprocessor).encode()}
    with pytest.raises(ValueError, match="describes a preparation of images that is not supported; set mean"):
        folder_normalisation("m", files)
