"""A user's own module, found by name, against the same module in plain torch."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tasks.models import custom, modules, networks
from tasks.models.catalog import Network, Regularisers
from tasks.models.counter_rng import CounterRng
from tasks.models.inference import logits
from tasks.models.layers import Layers, Mode
from tasks.models.networks import Architecture
from tasks.numerics import seeds

SHAPE = (8, 6, 2)
CLASSES = 3
ROWS = 10

NETWORK = """
import torch
from torch import nn
from .parts import BLOCK

def plain(shape, classes):
    channels, height, width = shape
    return nn.Sequential(*BLOCK(channels), nn.Flatten(), nn.Linear(4 * (height - 2) * (width - 2), classes))

def dropping(shape, classes):
    channels, height, width = shape
    inputs = 4 * (height - 2) * (width - 2)
    return nn.Sequential(*BLOCK(channels), nn.Flatten(), nn.Dropout(0.5), nn.Linear(inputs, classes))

def not_a_module(shape, classes):
    return 3

def failing(shape, classes):
    raise RuntimeError("no\\nluck")

def wrong(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(96, classes + 1))

def unlearnable(shape, classes):
    return nn.Flatten()

class Branching(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.out = nn.Linear(96, classes)

    def forward(self, x):
        x = self.out(x.flatten(1))
        return x if x.sum().item() > 0 else 2 * x

def branching(shape, classes):
    return Branching(classes)

class Noisy(Branching):
    def forward(self, x):
        return self.out(x.flatten(1)) + torch.rand(())

def noisy(shape, classes):
    return Noisy(classes)
"""
PARTS = """
from torch import nn

def BLOCK(channels):
    return nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with the networks above, importable while the test runs."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "network.py").write_text(NETWORK)
    (folder / "parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "theirs"]:
        del sys.modules[name]
    networks.logits_of.cache_clear()


def architecture(function: str) -> Architecture:
    return Architecture(f"theirs.network:{function}", SHAPE, CLASSES)


def plain_module(function: str, seed: int) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(seeds.derive(seed, "initial weights"))
        make: Callable[..., nn.Module] = getattr(importlib.import_module("theirs.network"), function)
        return make((2, 8, 6), CLASSES)


def rows(step: int, models: int = 2) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(step)
    return torch.rand((models, ROWS, 96), generator=stream), torch.randint(CLASSES, (models, ROWS), generator=stream)


def stack(network: Architecture, seeds_: list[int]) -> dict[str, Tensor]:
    starts = [network.initial(seed) for seed in seeds_]
    result = {}
    for name, weight in network.weights.items():
        result[name] = torch.from_numpy(np.stack([start[name] for start in starts])).requires_grad_(weight.learned)
    return result


def nchw(pixels: Tensor) -> Tensor:
    return pixels.view(-1, *SHAPE).permute(0, 3, 1, 2)


def keys(step: int, models: int = 2) -> Tensor:
    return torch.tensor([-7, 12])[:models] + step


@pytest.mark.parametrize("function", ["plain", "dropping"])
def test_training_equals_plain_torch_for_every_model(package: Path, function: str) -> None:
    network = architecture(function)
    # In float64: the gradient of a bias before batch norm is only rounding error, which Adam would amplify.
    tensors = {}
    for n, t in stack(network, [1, 2]).items():
        tensors[n] = t.detach().double().requires_grad_(t.requires_grad)
    learned = [tensor for tensor in tensors.values() if tensor.requires_grad]
    adam = torch.optim.Adam(learned, lr=1e-2)
    plain = [plain_module(function, seed).double() for seed in (1, 2)]
    optimisers = [torch.optim.Adam(module.parameters(), lr=1e-2) for module in plain]
    for step in range(4):
        pixels = rows(step)[0].double()
        labels = rows(step)[1]
        real = torch.ones(2, ROWS)
        if step == 3:
            real[1, 6:] = 0  # the second model's last batch is smaller
        mode = Mode(True, CounterRng(keys(step)), None if bool(real.all()) else real)
        losses = nn.functional.cross_entropy(network.logits(Layers(tensors, mode), pixels).mT, labels, reduction="none")
        adam.zero_grad()
        (losses * real / real.sum(1, keepdim=True)).sum().backward()
        adam.step()
        for m, (module, optimiser) in enumerate(zip(plain, optimisers, strict=True)):
            count = int(real[m].sum())
            with torch.random.fork_rng([]):
                torch.manual_seed(int(keys(step)[m]))
                outputs = module(nchw(pixels[m, :count]))
            optimiser.zero_grad()
            nn.functional.cross_entropy(outputs, labels[m, :count]).backward()
            optimiser.step()
    for m, module in enumerate(plain):
        for name, tensor in modules.tensors_of(module).items():
            if name in tensors:
                torch.testing.assert_close(tensor.detach(), tensors[name][m].detach(), atol=1e-7, rtol=0)
    trained_weights = [{name: tensor[m].detach().float().numpy() for name, tensor in tensors.items()} for m in range(2)]
    images = np.random.default_rng(0).integers(0, 256, (5, *SHAPE), dtype=np.uint8)
    for m, module in enumerate(plain):
        with torch.no_grad():
            expected = module.eval().float()(nchw(torch.from_numpy(images / np.float32(255)).flatten(1)))
        np.testing.assert_allclose(expected.numpy(), logits(network, trained_weights, images)[m], atol=1e-4)


def test_model_is_independent_of_stack_and_random_state(package: Path) -> None:
    network = architecture("dropping")
    pixels, _ = rows(0)
    together = network.logits(Layers(stack(network, [1, 2]), Mode(True, CounterRng(keys(0)))), pixels)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    alone = network.logits(Layers(stack(network, [2]), Mode(True, CounterRng(keys(0)[1:]))), pixels[1:])
    assert torch.equal(together[1], alone[0])
    assert torch.equal(before, torch.get_rng_state())


def test_properties_are_found_by_trial(package: Path) -> None:
    properties = {}
    for name in ("plain", "dropping", "branching"):
        properties[name] = (architecture(name).stackable, architecture(name).capturable)
    assert properties == {"plain": (True, True), "dropping": (False, False), "branching": (False, False)}
    user_module = architecture("dropping").own
    assert user_module is not None
    assert user_module.random(training=True)
    assert not user_module.random(training=False)
    assert list(user_module.module.constants) == ["1.num_batches_tracked"]
    assert {n for n, w in user_module.module.weights.items() if not w.learned} == {"1.running_mean", "1.running_var"}
    assert Architecture("cnn1", (28, 28, 1), 10).stackable


def test_stack_in_one_pass_equals_single_models(package: Path) -> None:
    network = architecture("plain")
    pixels, _ = rows(0)
    for training in (True, False):
        tensors = stack(network, [1, 2])
        together = network.logits(Layers(tensors, Mode(training, CounterRng(keys(0)))), pixels)
        for m, seed in enumerate((1, 2)):
            one = stack(network, [seed])
            alone = network.logits(Layers(one, Mode(training, CounterRng(keys(0)[m : m + 1]))), pixels[m : m + 1])
            torch.testing.assert_close(alone[0], together[m], atol=1e-5, rtol=1e-4)
            for name, tensor in one.items():
                torch.testing.assert_close(tensor[0], tensors[name][m], atol=1e-6, rtol=1e-5)


def test_name_is_pinned_to_source_of_its_package(package: Path) -> None:
    name = custom.pin(Network.parse("theirs.network:plain"))
    assert name == custom.pin(name)
    assert Architecture(str(name), SHAPE, CLASSES).weights
    (package / "parts.py").write_text(PARTS + "ANOTHER = 1\n")
    with pytest.raises(ValueError, match=r"network:plain is not the one that was pinned: its source has digest"):
        custom.pin(name)
    with pytest.raises(ValueError, match="its source has changed since this process imported it"):
        _ = Architecture(str(custom.pin(Network.parse("theirs.network:dropping"))), SHAPE, CLASSES).weights
    assert Network("mlp1") == custom.pin(Network("mlp1"))


def test_pinning_imports_neither_the_package_nor_torch(package: Path) -> None:
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    assert custom.pin(Network.parse("theirs.network:plain")).digest


def test_module_without_package_is_pinned_by_its_file(package: Path) -> None:
    file = package.parent / "single.py"
    file.write_text("x = 1")
    before = custom.pin(Network.parse("single:make"))
    (package.parent / "other.py").write_text("y = 1")
    assert before == custom.pin(Network.parse("single:make"))
    file.write_text("x = 2")
    assert before != custom.pin(Network.parse("single:make"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("theirs.network:", r"network is 'theirs\.network:'; write your own model as package\.module:factory"),
        ("theirs.absent:plain", r"there is no module 'theirs\.absent' on Python's path"),
        ("nowhere:plain", "there is no module 'nowhere' on Python's path"),
        ("nowhere.py:plain", "name the module, nowhere:plain, and put its folder on PYTHONPATH"),
        ("theirs.network:absent", r"theirs\.network has no function absent; it has BLOCK, plain, dropping"),
        ("theirs.network:not_a_module", "its factory made a int; it must make a torch.nn.Module"),
        ("theirs.network:failing", "its factory failed: RuntimeError: no luck"),
        ("theirs.network:wrong", r"returns \(4, 4\) for 4 images; expected logits \(4, 3\)"),
        ("theirs.network:unlearnable", "it has no parameters to learn"),
        ("theirs.network:noisy", "draws random numbers in evaluation; this is allowed only in training"),
    ],
)
def test_unusable_modules_are_refused(package: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        _ = Architecture(name, SHAPE, CLASSES).weights
    assert "\n" not in str(error.value)


def test_regularisers_are_refused_for_users_modules(package: Path) -> None:
    with pytest.raises(ValueError, match=r"dropout is on, but theirs\.network:plain has no such option"):
        Architecture("theirs.network:plain", SHAPE, CLASSES, Regularisers(dropout=True))
