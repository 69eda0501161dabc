"""Checkpoints in common layouts: the network's weights are found in any of them, and no code is run."""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.external import encoders, loading
from tasks.external.checkpoint_weights import check_choice, choose_weights, find_weights
from tasks.external.inert_pickle import Unreadable, all_tensors, open_saved, read_tensor
from tasks.external.model_file import EncoderInterface, ModelFile, content, pin

SHAPE = (6, 5, 1)
CLASSES = 3
SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(inputs, 4), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, classes) if classes else nn.Identity()

    def forward(self, images):
        return self.head(self.backbone(images.flatten(1)))

def net(shape, classes):
    return Net(shape[0] * shape[1] * shape[2], classes)
"""


class Touch:
    """An object whose unpickling would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return pathlib.Path.touch, (self.path,)


@pytest.fixture(autouse=True)
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "checkpoint_net.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("checkpoint_net", None)


def make_network(classes: int = CLASSES, seed: int = 0) -> nn.Module:
    scope: dict[str, Any] = {"__name__": "made"}
    exec(SOURCE, scope)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network: nn.Module = scope["net"]((SHAPE[2], SHAPE[0], SHAPE[1]), classes)
        network(torch.rand(9, 1, 6, 5))
    return network.eval()


def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (7, *SHAPE), np.uint8)


def ask(network: nn.Module) -> NDArray[np.float64]:
    with torch.no_grad():
        outputs: Tensor = network(torch.from_numpy(images()).permute(0, 3, 1, 2).float() / 255)
    return outputs.double().numpy()


def log_p(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return torch.from_numpy(logits).log_softmax(1).numpy()


def rename(state: dict[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    result = {}
    for name, value in state.items():
        result[name.replace(old, new) if old else new + name] = value
    return result


def optimizer_state(network: nn.Module) -> dict[str, Any]:
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.rand(4, 1, 6, 5)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def settings() -> argparse.Namespace:
    return argparse.Namespace(lr=0.1, output=pathlib.PurePosixPath("/runs"), best=np.float64(0.5))


CHECKPOINTS = {
    "bare": lambda state: state,
    "tutorial": lambda state: {"epoch": 3, "model_state_dict": state, "loss": 0.5},
    "model": lambda state: {"model": state, "optimizer": optimizer_state(make_network(seed=5))},
    "net, parallel": lambda state: {"net": rename(state, "", "module."), "acc": 91.2},
    "nested": lambda state: {"state": {"run": [{"model": {"weights": state}}]}},
    "compiled": lambda state: {"model": rename(state, "", "_orig_mod.")},
    "a compiled part": lambda state: rename(state, "backbone.", "backbone._orig_mod."),
    "compiled and parallel parts": lambda state: rename(state, "backbone.", "_orig_mod.backbone.module."),
    "Namespace": lambda state: {"state_dict": state, "args": settings()},
    "NumPy scalar": lambda state: {"state_dict": state, "best": np.float64(0.5), "curve": np.arange(5)},
    "containers": lambda state: {"m": state, "log": collections.defaultdict(list, a=[1]), "q": collections.deque([1])},
    "an averaged copy of other names": lambda state: {"swa": {"n": torch.ones(1)}, "model": state},
    "beside a loss": lambda state: {"state_dict": rename(state, "", "model.") | {"loss.weight": torch.ones(2)}},
    "parameters": lambda state: {"model": {name: nn.Parameter(v, v.is_floating_point()) for name, v in state.items()}},
}


@pytest.mark.parametrize("form", ["archive", "legacy", "protocol 4"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_weights_are_found_in_every_checkpoint_layout(name: str, form: str, tmp_path: Path) -> None:
    network = make_network()
    options: dict[str, Any] = {
        "archive": {},
        "legacy": {"_use_new_zipfile_serialization": False},
        "protocol 4": {"pickle_protocol": 4},
    }
    torch.save(CHECKPOINTS[name](network.state_dict()), tmp_path / "w.pt", **options[form])
    answers = loading.log_probabilities(pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}")), images(), classes=3)
    np.testing.assert_allclose(answers.log_p, log_p(ask(network)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_encoder_is_found_in_every_checkpoint_layout(name: str, tmp_path: Path) -> None:
    network = make_network(classes=0)
    torch.save(CHECKPOINTS[name](network.state_dict()), tmp_path / "w.pt")
    model = pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}"))
    encoder = encoders.load_encoder(model, SHAPE, EncoderInterface())
    np.testing.assert_allclose(encoder.embed(images()), ask(network), rtol=0, atol=1e-5)


def test_pickled_objects_in_checkpoint_are_not_run(tmp_path: Path) -> None:
    network = make_network()
    ran = tmp_path / "ran"
    torch.save({"model": network.state_dict(), "hook": Touch(ran)}, tmp_path / "w.pt")
    answers = loading.log_probabilities(pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}")), images(), classes=3)
    np.testing.assert_allclose(answers.log_p, log_p(ask(network)), rtol=0, atol=1e-5)
    assert not ran.exists()


def test_several_fitting_weights_are_selected_by_part(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    networks = {"model": make_network(seed=1), "ema": make_network(seed=2)}
    state = {name: network.state_dict() for name, network in networks.items()}
    state["ema"] = rename(state["ema"], "", "module.")
    torch.save({**state, "args": settings()}, path)
    with pytest.raises(
        ValueError, match=r"contains several sets of weights that fit: model, ema; name one .*: #model$"
    ):
        pin(ModelFile(f"checkpoint_net:net+{path}"))
    digests = set()
    for part, network in networks.items():
        model = pin(ModelFile(f"checkpoint_net:net+{path}#{part}"))
        assert str(path) == model.path
        assert part == model.part
        assert model.name == f"checkpoint_net:net+{path}#{part}"
        answers = loading.log_probabilities(model, images(), classes=3)
        np.testing.assert_allclose(answers.log_p, log_p(ask(network)), rtol=0, atol=1e-5)
        digests.add(model.digest)
    assert len(digests) == 2
    with pytest.raises(ValueError, match="has no weights in 'mean'; it has model, ema"):
        pin(ModelFile(f"checkpoint_net:net+{path}#mean"))


STATE = {"1.weight": 0.0, "1.bias": 0.0}
TWO_NETWORKS = {f"{name}.{key}": value for name in ("student", "teacher") for key, value in STATE.items()}


@pytest.mark.parametrize(
    ("contents", "parts"),
    [
        ({"model": STATE, "ema": dict(STATE)}, "model, ema"),
        ({"model": STATE, "ema": STATE}, "model, ema"),  # one object under two keys
        ({"optimizer": {"state": {"0": dict(STATE)}, "param_groups": []}, "model": STATE}, "model"),
        ({"state_dict": TWO_NETWORKS}, "state_dict, state_dict.student, state_dict.teacher"),
        (TWO_NETWORKS, "student, teacher"),
        ({"models": [STATE, dict(STATE)]}, "models.0, models.1"),
        (STATE, "one set, so leave out the name after the path"),
        ({f"fold{number}": dict(STATE) for number in range(20)}, "fold0, .*fold7 and 12 more"),
    ],
)
def test_unknown_part_lists_available_parts(contents: Any, parts: str) -> None:
    weights = find_weights(contents, lambda value: isinstance(value, float))
    with pytest.raises(ValueError, match=f"^model.pt has no weights in 'nope'; it has {parts}$"):
        check_choice("model.pt", weights, "nope")


def test_shared_object_fits_under_both_keys() -> None:
    state = {name: np.zeros(2) for name in STATE}
    weights = find_weights({"model": state, "ema": state}, lambda value: isinstance(value, np.ndarray))
    network = dict.fromkeys(STATE, (2,))
    for part in ("", "model", "ema"):
        check_choice("model.pt", weights, part)
        assert choose_weights("model.pt", network, weights, part).keys() == STATE.keys()


def test_networks_in_one_mapping_are_selected_by_prefix(tmp_path: Path) -> None:
    online = make_network(seed=1)
    target = make_network(seed=2)
    state = rename(online.state_dict(), "", "online.") | rename(target.state_dict(), "", "target.")
    torch.save({"state_dict": state}, tmp_path / "w.ckpt")
    name = f"checkpoint_net:net+{tmp_path / 'w.ckpt'}"
    with pytest.raises(ValueError, match=r"fit: state_dict\.online, state_dict\.target; name one"):
        loading.log_probabilities(pin(ModelFile(name)), images(), classes=3)
    answers = loading.log_probabilities(pin(ModelFile(f"{name}#state_dict.target")), images(), classes=3)
    np.testing.assert_allclose(answers.log_p, log_p(ask(target)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"epoch": 3, "args": settings()}, r"no weights by name: epoch \(int\), args \(argparse\.Namespace\)"),
        (settings(), r"no weights by name: argparse\.Namespace; pickled objects"),
        (nn.Linear(3, 2), r"no weights by name: torch\.nn\.modules\.linear\.Linear; pickled objects"),
        ({"model": nn.Linear(3, 2)}, r"no weights by name: model \(torch\.nn\.modules\.linear\.Linear\)"),
        ({}, "no weights by name: an empty dictionary"),
    ],
    ids=["settings", "Namespace", "module", "wrapped module", "empty"],
)
def test_file_without_weights_lists_its_contents(saved: object, message: str, tmp_path: Path) -> None:
    torch.save(saved, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=message) as refused:
        pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}"))
    assert "\n" not in str(refused.value)


def test_sparse_weights_are_refused_by_torch(tmp_path: Path) -> None:
    torch.save({"weight": torch.eye(3).to_sparse()}, tmp_path / "w.pt")
    model = pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}"))
    with pytest.raises(ValueError, match=r"the weights do not fit the factory's network: .*Unexpected key.*weight"):
        loading.log_probabilities(model, images(), classes=3)


def test_mappings_that_do_not_fit_are_named(tmp_path: Path) -> None:
    torch.save({"a": nn.Linear(3, 2).state_dict(), "b": nn.PReLU().state_dict()}, tmp_path / "w.pt")
    model = pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}"))
    with pytest.raises(ValueError, match=r"has the network's 9 names, such as .*; it has a \(2 tensors\), b \(1 ten"):
        loading.log_probabilities(model, images(), classes=3)


@pytest.mark.parametrize("legacy", [False, True])
def test_described_tensors_equal_torchs(legacy: bool, tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    kinds = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float16, torch.bfloat16]
    tensors = {str(kind): base.to(kind) for kind in kinds}
    tensors |= {
        "view": base[1:, ::2],
        "turned": base.T,
        "scalar": base[2, 3],
        "none": base[:0],
        "z": base.to(torch.cfloat),
    }
    torch.save(tensors, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
    saved = open_saved((tmp_path / "w.pt").read_bytes())
    assert len(all_tensors(saved.contents)) == len(tensors)
    for name, tensor in tensors.items():
        tensor_read = read_tensor(saved, saved.contents[name])
        assert tensor_read.dtype == tensor.dtype
        assert torch.equal(tensor_read, tensor)


def test_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(4), "args": settings()}, tmp_path / "w.pt")
    content = (tmp_path / "w.pt").read_bytes()
    saved = open_saved(content)
    described = saved.contents["w"]
    for changed in ({"offset": 1}, {"offset": -1}, {"stride": (9,)}, {"stride": (-1,)}, {"shape": (5,)}):
        tensor = type(described)(**{**described.__dict__, **changed})
        with pytest.raises(Unreadable, match="for which its storage is too short"):
            read_tensor(saved, tensor)
    with pytest.raises(Unreadable, match="its pickle cannot be read"):
        open_saved(content[:200])


def test_part_changes_pinned_digest(tmp_path: Path) -> None:
    torch.save({"model": make_network().state_dict()}, tmp_path / "w.pt")
    entire_file, part = (pin(ModelFile(f"checkpoint_net:net+{tmp_path / 'w.pt'}{end}")) for end in ("", "#model"))
    assert entire_file.digest != part.digest
    assert content(entire_file) == content(part)
    assert part.named().name == "checkpoint_net:net+w.pt#model"
