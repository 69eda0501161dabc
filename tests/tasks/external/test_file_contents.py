"""The contents of a model file are checked without loading it, and refused when a run is planned."""

import pickle
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from tasks.external.file_contents import check_contents, holds_tensors_alone
from tests.support.shell import Here, refusals

SETTINGS = ("given.shape=8,8,1", "given.classes=10", "probe=digits", "feature=words:JANE DOE")


def refusal(path: Path, kind: str) -> str:
    with pytest.raises(ValueError, match="model ") as refused:
        check_contents(path.name, str(path), kind, path.read_bytes())
    return str(refused.value)


@pytest.mark.parametrize("legacy", [False, True])
def test_pickle_of_tensors_differs_from_pickle_of_code(legacy: bool, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    plain = {"state_dict": module.state_dict(), "half": torch.zeros(2, dtype=torch.bfloat16), "of": {1, 2j}}
    for value, is_tensors_only in (
        (plain, True),
        (nn.Parameter(torch.ones(3)), True),
        (module, False),
        (Path("a"), False),
    ):
        torch.save(value, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
        assert is_tensors_only == holds_tensors_alone((tmp_path / "w.pt").read_bytes())
    assert not holds_tensors_alone(pickle.dumps(module, protocol=5))


def test_everything_that_torch_reads_as_weights_passes() -> None:
    allowed = torch._weights_only_unpickler._get_allowed_globals()
    assert len(allowed) > 50
    for full in allowed:
        module, _, name = full.rpartition(".")
        assert holds_tensors_alone(f"\x80\x02c{module}\n{name}\n.".encode("latin1")), full


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(nn.Linear(3, 2)).save(str(tmp_path / "m.pt"))
    check_contents("m.pt", "m.pt", "torchscript", (tmp_path / "m.pt").read_bytes())
    assert "m.pt is TorchScript, which contains its network: pass only " in refusal(tmp_path / "m.pt", "factory")
    assert "not an archive of torch.export.save" in refusal(tmp_path / "m.pt", "export")
    for content in (b"", b"no weights", b"\2\0\0\0\0\0\0\0[]", (2**62).to_bytes(8, "little") + b"{}"):
        (tmp_path / "w.safetensors").write_bytes(content)
        assert "w.safetensors is not a valid .safetensors: its header cannot be read" in refusal(
            tmp_path / "w.safetensors", "timm"
        )


def test_planning_refuses_unusable_files(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    torch.save(module.state_dict(), tmp_path / "state.pt")
    torch.save(module, tmp_path / "whole.pt")
    for name in ("garbage.pt", "garbage.pt2", "garbage.npz"):
        (tmp_path / name).write_bytes(b"neither weights nor a program")
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("other/readme.txt", "no program")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "config.json").write_text('{"architectures": ["ViTForImageClassification"]}')
    for number, index in enumerate(
        ("[]", '{"weight_map": {"w": "../w.safetensors"}}', '{"weight_map": {"w": "w.safetensors"}}')
    ):
        shutil.copytree(tmp_path / "shards", tmp_path / f"shards{number}")
        (tmp_path / f"shards{number}" / "model.safetensors.index.json").write_text(index)
    engram = Here(tmp_path)
    for model, code, message in (
        ("state.pt", 2, "it is a state dict, which needs its network: write package.module:factory+state.pt"),
        ("whole.pt", 2, "such as a whole module, would have to be unpickled, which runs code"),
        ("timm:resnet10t+whole.pt", 2, "are not unpickled, since this would run code; save the weights"),
        ("last.ckpt", 2, "a file of weights, which needs its network: write package.module:factory+last.ckpt"),
        ("transformers:nowhere", 1, "there is no folder"),
        ("garbage.pt", 2, "is not TorchScript: it is not an archive; save it with torch.export.save"),
        ("other.pt", 2, "is not TorchScript: its archive contains no program"),
        ("garbage.pt2", 2, "is not an archive of torch.export.save"),
        ("timm:resnet10t+garbage.pt", 2, "is not a file of torch.save; use torch.save(model.state_dict(), path)"),
        ("timm:resnet10t+other.pt", 2, "is not a file of torch.save"),
        ("timm:resnet10t+garbage.npz", 2, "is not a valid .npz archive"),
        ("transformers:shards0", 2, "its model.safetensors.index.json is not a JSON object"),
        ("transformers:shards1", 2, "does not list the files of the folder that contain the weights"),
        ("transformers:shards2", 1, "there is no file"),
    ):
        result = engram("plan", "unique_feature", f"given.models={model}", *SETTINGS, code=code)
        assert message in result.stderr
        assert "Traceback" not in result.stderr
        assert len(refusals(result.stderr)) == 1


def test_pinning_loads_no_torch(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "w.pt")
    script = f"""
import sys
from tasks.external.model_file import ModelFile, pin
pin(ModelFile("timm:resnet10t+{tmp_path / "w.pt"}"))
assert not sys.modules.keys() & {{"torch", "transformers", "timm", "safetensors"}}
"""
    subprocess.run([sys.executable, "-c", script], check=True)
