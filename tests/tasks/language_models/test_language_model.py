"""Language models by name: their identity is their content, and they are never downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import EngramError
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.language_models.language_model import LanguageModel, ModelError, TinyModel
from tasks.worker.files import FileError


def saved(folder: Path, weights: bytes = b"weights") -> LanguageModel:
    """A folder with the files that a model's have."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("about it")
    return LanguageModel(f"folder:{folder}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "t5-small",
            "model: expected tiny-t5, tiny-gpt, folder:PATH or hub:NAME, got 't5-small'",
        ),
        ("tiny-t5#64", "model: expected tiny-t5, tiny-gpt, folder:PATH or hub:NAME"),
        ("tiny-t5#40x2", "expected a width that is a multiple of 16"),
        ("folder:", "expected tiny-t5, tiny-gpt, folder:PATH or hub:NAME"),
    ],
)
def test_invalid_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanguageModel.parse(name)


def test_identity_of_tiny_t5_is_its_sizes() -> None:
    assert TinyModel("t5", 64, 2) == LanguageModel("tiny-t5").tiny_sizes
    assert LanguageModel("tiny-t5").identity() == LanguageModel("tiny-t5#64x2").identity()
    assert LanguageModel("tiny-t5").identity() != LanguageModel("tiny-t5#32x2").identity()
    assert LanguageModel("tiny-t5") == LanguageModel("tiny-t5").pin({})


def test_identity_of_folder_is_its_content(tmp_path: Path) -> None:
    model = saved(tmp_path / "model").pin({})
    same = saved(tmp_path / "an@other").pin({})
    assert model.identity() == same.identity()
    assert same == LanguageModel.parse(str(same))
    (tmp_path / "model" / "README.md").write_text("more about it")
    assert model == model.pin({})
    other_models = [saved(tmp_path / "other weights", b"others").pin({})]
    for changed in ("config.json", "tokenizer.json"):
        another = saved(tmp_path / changed)
        (tmp_path / changed / changed).write_text("{ }")
        other_models.append(another.pin({}))
    assert len({candidate.identity() for candidate in (model, *other_models)}) == 4
    with pytest.raises(ModelError, match="is not the one that was pinned"):
        LanguageModel(other_models[0].name, model.digest).pin({})


def test_folder_is_named_without_its_path(tmp_path: Path) -> None:
    model = saved(tmp_path / "model").pin({})
    assert LanguageModel("folder:model", model.digest) == model.named()
    assert LanguageModel("hub:google/t5") == LanguageModel("hub:google/t5").named()


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ("model.safetensors", r"expected weights \*\.safetensors"),
        ("config.json", "expected config.json"),
        ("tokenizer.json", "expected a tokenizer"),
    ],
)
def test_missing_file_of_folder_is_named(tmp_path: Path, lacking: str, message: str) -> None:
    model = saved(tmp_path / "model")
    (tmp_path / "model" / lacking).unlink()
    with pytest.raises(ModelError, match=message):
        model.pin({})


def test_adapter_is_no_model(tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="expected a model, got an adapter"):
        model.pin({})


def test_pipe_instead_of_weights_does_not_block(tmp_path: Path) -> None:
    import os

    model = saved(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model" / "model.safetensors")
    with pytest.raises(FileError, match="it is a device, a pipe or a socket"):
        model.pin({})


def test_missing_hub_model_is_refused_with_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ModelError,
        match=r"t5-small is not in the cache of the hub, and this tool downloads nothing.*: hf download t5-small",
    ):
        LanguageModel("hub:t5-small").pin({})


def test_hub_model_equals_model_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    cache_folder = tmp_path / "models--google--t5"
    (cache_folder / "refs").mkdir(parents=True)
    (cache_folder / "refs" / "main").write_text("0123")
    (cache_folder / "snapshots").mkdir()
    same = saved(cache_folder / "snapshots" / "0123").pin({})
    assert same.identity() == LanguageModel("hub:google/t5").pin({}).identity()
    assert LanguageModel("hub:google/t5").pin({}).name == "hub:google/t5"


def test_language_models_of_a_config_are_pinned(tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    (cell,) = pin_cells([Cell("audit", (model,), None, {})], {})
    assert (model.pin({}),) == cell.config
    with pytest.raises(EngramError, match="there is no folder"):
        pin_cells([Cell("audit", (LanguageModel(f"folder:{tmp_path}/none"),), None, {})], {})
