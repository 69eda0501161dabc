"""Each network, one model and three at once, compared with the same network in torch's own modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from tasks.contract.schemas import MODEL, add_width
from tasks.models.catalog import DESCRIPTIONS, OPTIONS, PLAIN, Regularisers
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers, Mode, initial
from tasks.models.networks import DEFINITIONS, Architecture, architecture_of, network_row, weight_rows, weights_of_model
from tasks.worker.hardware import threads

MODELS = 3
ROWS = 5
KEYS = torch.tensor([11, 12, 13])
GREY = (28, 28, 1)
COLOUR = (32, 32, 3)
BOTH = Regularisers(dropout=True, batch_norm=True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other on busy cores take four times as long."""
    with threads(1):
        yield


class Dropout(nn.Module):
    """Dropout with the draws of one model, at consecutive sites of the network."""

    def __init__(self, rate: float, key: Tensor, sites: Iterator[int]) -> None:
        super().__init__()
        self.rate = rate
        self.draws = CounterRng(key[None])
        self.sites = sites
        self.rows: Tensor | None = None  # the real rows

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        rows = torch.arange(len(x)) if self.rows is None else self.rows
        mask = self.draws.dropout_mask(next(self.sites), (ROWS, *x.shape[1:]), self.rate)[0]
        return x * mask[rows] / (1 - self.rate)


Make = Callable[[float], nn.Module]  # dropout by its rate


def around(norm: type[nn.Module], size: int, rate: float, options: Regularisers, dropout: Make) -> list[nn.Module]:
    before = [norm(size, eps=1e-3, momentum=0.01)] if options.batch_norm else []
    return [*before, nn.ReLU(), *([dropout(rate)] if options.dropout else [])]


def mlp1(shape: tuple[int, int, int], classes: int, options: Regularisers, dropout: Make) -> nn.Module:
    bias = not options.batch_norm  # batch norm would cancel it
    parts: list[nn.Module] = [nn.Flatten()]
    sizes = [math.prod(shape), 512, 256, 128]
    for inputs, units in pairwise(sizes):
        parts += [nn.Linear(inputs, units, bias=bias), *around(nn.BatchNorm1d, units, 0.2, options, dropout)]
    return nn.Sequential(*parts, nn.Linear(128, classes))


def cnn1(shape: tuple[int, int, int], classes: int, options: Regularisers, dropout: Make) -> nn.Module:
    bias = not options.batch_norm  # batch norm would cancel it
    side = (shape[0] - 4) // 2
    return nn.Sequential(
        nn.Conv2d(shape[2], 32, 3, bias=bias),
        *around(nn.BatchNorm2d, 32, 0.5, options, dropout),
        nn.Conv2d(32, 64, 3, bias=bias),
        nn.MaxPool2d(2),
        *around(nn.BatchNorm2d, 64, 0.5, options, dropout),
        nn.Flatten(),
        nn.Linear(64 * side**2, 128, bias=bias),
        *around(nn.BatchNorm1d, 128, 0.2, options, dropout),
        nn.Linear(128, 128, bias=bias),
        *around(nn.BatchNorm1d, 128, 0.2, options, dropout),
        nn.Linear(128, classes),
    )


def cnn2(shape: tuple[int, int, int], classes: int, options: Regularisers, dropout: Make) -> nn.Module:
    bias = not options.batch_norm  # batch norm would cancel it
    side = ((shape[0] - 4) // 2 - 4) // 2
    parts: list[nn.Module] = []
    for inputs, channels in ((shape[2], 32), (32, 64)):
        parts += [nn.Conv2d(inputs, channels, 3, bias=bias), *around(nn.BatchNorm2d, channels, 0.5, options, dropout)]
        parts += [nn.Conv2d(channels, channels, 3, bias=bias), *around(nn.BatchNorm2d, channels, 0.5, options, dropout)]
        parts += [nn.MaxPool2d(2)]
    parts += [
        nn.Flatten(),
        nn.Linear(64 * side**2, 1024, bias=bias),
        *around(nn.BatchNorm1d, 1024, 0.2, options, dropout),
    ]
    return nn.Sequential(*parts, nn.Linear(1024, classes))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, options: Regularisers, dropout: Make) -> None:
        super().__init__()
        drop = [dropout(0.2)] if options.dropout else []
        self.inside = nn.Sequential(*composite(channels, 48, 1), *drop, *composite(48, 12, 3), *drop)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.inside(x)], 1)


def composite(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs, eps=1e-3, momentum=0.01), nn.ReLU(), convolution]


def densenet100(shape: tuple[int, int, int], classes: int, options: Regularisers, dropout: Make) -> nn.Module:
    drop = [dropout(0.2)] if options.dropout else []
    parts: list[nn.Module] = [nn.Conv2d(shape[2], 24, 3, padding=1, bias=False)]
    channels = 24
    for block in range(3):
        if block:
            parts += [*composite(channels, channels // 2, 1), *drop, nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(16):
            parts.append(Bottleneck(channels, options, dropout))
            channels += 12
    parts += [nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(channels, classes))


class Basic(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inside(x) + self.shortcut(x))


def resnet18(shape: tuple[int, int, int], classes: int, options: Regularisers, dropout: Make) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(shape[2], 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for channels in (64, 128, 256, 512):
        parts += [Basic(before, channels, 1 if before == channels else 2), Basic(channels, channels, 1)]
        before = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Whitening(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(8 * channels, channels, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.get_buffer("weight"))


class Shift(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias[:, None, None]


class ShiftedNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = Shift(channels)
        self.norm = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.shift(self.norm(x))


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 9


def airbench(shape: tuple[int, int, int], classes: int, options: Regularisers, dropout: Make) -> nn.Module:
    before = 8 * shape[2]
    parts: list[nn.Module] = [Whitening(shape[2]), Shift(before), nn.GELU()]
    for channels in (64, 256, 256):
        parts += [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.MaxPool2d(2)]
        parts += [ShiftedNorm(channels), nn.GELU()]
        parts += [nn.Conv2d(channels, channels, 3, padding=1, bias=False), ShiftedNorm(channels), nn.GELU()]
        before = channels
    return nn.Sequential(*parts, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(before, classes, bias=False), Scale())


MODULES = {
    "mlp1": mlp1,
    "cnn1": cnn1,
    "cnn2": cnn2,
    "densenet100": densenet100,
    "resnet18": resnet18,
    "airbench": airbench,
}

CASES = [
    ("mlp1", GREY, PLAIN),
    ("mlp1", COLOUR, BOTH),
    ("cnn1", GREY, PLAIN),
    ("cnn1", GREY, Regularisers(dropout=True)),
    ("cnn1", COLOUR, BOTH),
    ("cnn2", COLOUR, PLAIN),
    ("cnn2", COLOUR, Regularisers(batch_norm=True)),
    ("cnn2", GREY, BOTH),
]
MODES = ("evaluation", "training", "padded", "alone")
# Deep networks on small images, because float64 is slow, and only in modes that the others do not cover.
DEEP = [
    ("densenet100", (16, 16, 3), PLAIN, "evaluation"),
    ("densenet100", (14, 14, 1), Regularisers(dropout=True), "padded"),
    ("densenet100", (14, 14, 1), Regularisers(dropout=True), "alone"),
    ("resnet18", (10, 10, 3), PLAIN, "evaluation"),
    ("resnet18", (10, 10, 3), PLAIN, "padded"),
    ("airbench", (16, 16, 3), PLAIN, "evaluation"),
    ("airbench", (16, 16, 1), PLAIN, "padded"),
    ("airbench", (16, 16, 3), PLAIN, "alone"),
]


def case_id(value: object) -> str:
    if isinstance(value, Regularisers):
        return "+".join(name for name in ("dropout", "batch_norm") if getattr(value, name)) or "plain"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


@lru_cache(maxsize=MODELS)  # consecutive cases share a network, and drawing millions of weights is slow
def start(architecture: Architecture, seed: int) -> Mapping[str, np.ndarray]:
    return initial(architecture.weights, seed)


def stack(architecture: Architecture, count: int) -> dict[str, Tensor]:
    """Models with different numbers in every tensor."""
    stream = np.random.default_rng(0)
    models = [start(architecture, seed) for seed in range(count)]
    tensors = {}
    for name, weight in architecture.weights.items():
        values = np.stack([model[name] for model in models]).astype(np.float64)
        # Biases, scales and statistics start equal: small offsets reveal a wrong position.
        values += stream.uniform(0.0, 0.1, values.shape) if values[0].ndim == 1 else 0
        tensors[name] = torch.from_numpy(values).requires_grad_(weight.learned)
    return tensors


def modules(architecture: Architecture, tensors: dict[str, Tensor], training: bool) -> list[nn.Module]:
    """The same models in torch, with tensors in the same order."""
    torch_models = []
    for m in range(len(next(iter(tensors.values())))):
        sites = iter(range(1, 1000))
        make = lambda rate, m=m, sites=sites: Dropout(rate, KEYS[m], sites)  # noqa: E731
        module = MODULES[architecture.name](architecture.shape, architecture.classes, architecture.regularisers, make)
        module.double().train(training)
        parameters = state(module)
        assert [tuple(tensor.shape[1:]) for tensor in tensors.values()] == [
            tuple(tensor.shape) for tensor in parameters
        ]
        for model_tensor, tensor in zip(tensors.values(), parameters, strict=True):
            tensor.data.copy_(model_tensor[m].detach())
        torch_models.append(module)
    return torch_models


def state(module: nn.Module) -> list[Tensor]:
    """Parameters and running statistics in the order of the modules."""
    result = []
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not name.endswith("tracked"):
            result.append(tensor)
    return result


def assert_close(actual: Tensor, expected: Tensor, atol: float, rtol: float) -> None:
    """Like torch.testing.assert_close, in a third of the time."""
    assert actual.shape == expected.shape
    assert ((actual - expected).abs_() <= expected.abs().mul_(rtol).add_(atol)).all()


def rows_of(shape: tuple[int, int, int]) -> Tensor:
    return torch.rand((MODELS, ROWS, math.prod(shape)), dtype=torch.float64, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("name", "shape", "options", "mode"), [*((*case, mode) for case in CASES for mode in MODES), *DEEP], ids=case_id
)
def test_network_and_gradients_equal_torchs_modules(
    name: str, shape: tuple[int, int, int], options: Regularisers, mode: str
) -> None:
    architecture = Architecture(name, shape, 7, options)
    models = 1 if mode == "alone" else MODELS
    tensors = stack(architecture, models)
    expected = modules(architecture, tensors, mode != "evaluation")
    real = None
    if mode == "padded":
        real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    pixels = rows_of(shape)[:models]
    layers = Layers(tensors, Mode(mode != "evaluation", CounterRng(KEYS[:models]), real))
    logits = architecture.logits(layers, pixels)
    assert logits.shape == (models, ROWS, 7)
    weighed = torch.randn((ROWS, 7), dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    real_rows = torch.ones(models, ROWS) if real is None else real
    learned = [tensor for tensor in tensors.values() if tensor.requires_grad]
    gradients = torch.autograd.grad((logits * weighed * real_rows[..., None]).sum(), learned)
    for m, module in enumerate(expected):
        rows = torch.nonzero(real_rows[m])[:, 0]
        for part in module.modules():
            if isinstance(part, Dropout):
                part.rows = rows
        images = pixels[m, rows].view(-1, *shape).permute(0, 3, 1, 2)
        outputs = module(images)
        torch.testing.assert_close(outputs, logits[m, rows], atol=1e-10, rtol=0)
        reference_gradients = torch.autograd.grad((outputs * weighed[rows]).sum(), list(module.parameters()))
        for reference, gradient in zip(reference_gradients, gradients, strict=True):
            assert_close(reference, gradient[m], atol=1e-10, rtol=1e-10)
        for reference, tensor in zip(state(module), tensors.values(), strict=True):
            assert_close(reference.detach(), tensor[m].detach(), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("shape", [GREY, COLOUR], ids=case_id)
def test_every_network_accepts_the_usual_images(name: str, shape: tuple[int, int, int]) -> None:
    architecture = Architecture(name, shape, 10)
    tensors = {name: torch.from_numpy(values)[None] for name, values in architecture.initial(0).items()}
    logits = architecture.logits(Layers(tensors), rows_of(shape)[:1, :2].float())
    assert logits.shape == (1, 2, 10)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", ["cnn1", "cnn2"])
@pytest.mark.parametrize("shape", [GREY, COLOUR], ids=case_id)
def test_float32_model_equals_torchs_modules(name: str, shape: tuple[int, int, int]) -> None:
    architecture = Architecture(name, shape, 7)
    exact = stack(architecture, 1)
    (module,) = modules(architecture, exact, False)
    tensors = {name: tensor.detach().float().requires_grad_() for name, tensor in exact.items()}
    pixels = rows_of(shape)[:1]
    logits = architecture.logits(Layers(tensors, Mode(True)), pixels.float())
    outputs = module(pixels[0].view(-1, *shape).permute(0, 3, 1, 2))
    torch.testing.assert_close(outputs.float(), logits[0], atol=1e-4, rtol=1e-3)
    gradients = torch.autograd.grad(logits.square().sum(), list(tensors.values()))
    reference_gradients = torch.autograd.grad(outputs.square().sum(), list(module.parameters()))
    for reference, gradient in zip(reference_gradients, gradients, strict=True):
        assert (reference - gradient[0]).norm() < 1e-4 * reference.norm()


@pytest.mark.parametrize(("name", "options"), [("cnn2", BOTH), ("airbench", PLAIN)], ids=case_id)
@pytest.mark.parametrize("models", [1, MODELS])
def test_memory_order_changes_only_rounding(name: str, options: Regularisers, models: int) -> None:
    architecture = Architecture(name, (16, 16, 3), 7, options)
    results = []
    for channels_last in (False, True):
        tensors = {}
        for tensor_name, tensor in stack(architecture, models).items():
            tensors[tensor_name] = tensor.detach().float().requires_grad_(tensor.requires_grad)
        mode = Mode(True, CounterRng(KEYS[:models]), channels_last=channels_last)
        logits = architecture.logits(Layers(tensors, mode), rows_of((16, 16, 3))[:models].float())
        learned = [tensor for tensor in tensors.values() if tensor.requires_grad]
        results.append([logits, *torch.autograd.grad(logits.square().sum(), learned)])
    for first, last in zip(*results, strict=True):
        assert (first - last).norm() <= 1e-4 * first.norm()


@pytest.mark.parametrize(
    ("name", "shape", "options", "count"),
    [
        ("mlp1", GREY, PLAIN, 567_434),
        ("cnn1", GREY, PLAIN, 1_216_394),  # 320 + 18,496 + 9,216 * 128 + 128 + 16,512 + 1,290
        ("cnn2", COLOUR, PLAIN, 1_715_242),  # 896 + 9,248 + 18,496 + 36,928 + 1,600 * 1,024 + 1,024 + 10,250
        (
            "cnn2",
            COLOUR,
            Regularisers(batch_norm=True),
            1_716_458,
        ),  # 2 (32 + 32 + 64 + 64 + 1,024) for batch norm, half of it instead of biases
        ("densenet100", COLOUR, PLAIN, 769_162),  # 0.8 M in Huang et al. 2018, table 2
        ("resnet18", COLOUR, PLAIN, 11_173_962),
        ("airbench", COLOUR, PLAIN, 1_971_352),  # 1.97 M in Jordan 2024
    ],
    ids=case_id,
)
def test_network_has_its_published_parameter_count(
    name: str, shape: tuple[int, int, int], options: Regularisers, count: int
) -> None:
    weights = Architecture(name, shape, 10, options).weights
    assert count == sum(math.prod(weight.shape) for weight in weights.values() if weight.learned)


@pytest.mark.parametrize(
    ("name", "shape", "width", "count"),
    [
        ("mlp1", GREY, 0.5, 242_762),  # 784 * 256 + 256 + 256 * 128 + 128 + 128 * 64 + 64 + 650
        ("cnn1", GREY, 0.5, 304_586),  # 160 + 4,640 + 4,608 * 64 + 64 + 4,160 + 650
        ("cnn2", COLOUR, 2.0, 6_836_298),  # 1,792 + 36,928 + 73,856 + 147,584 + 3,200 * 2,048 + 2,048 + 20,490
    ],
)
def test_width_scales_units_and_channels(name: str, shape: tuple[int, int, int], width: float, count: int) -> None:
    network = Architecture(name, shape, 10, width=width)
    assert count == sum(math.prod(weight.shape) for weight in network.weights.values())
    tensors = {name: torch.from_numpy(values)[None] for name, values in network.initial(0).items()}
    assert network.logits(Layers(tensors), torch.rand(1, 3, math.prod(shape))).shape == (1, 3, 10)
    # The fastest strategy is stored under this name, separately for each width.
    assert str(Architecture(name, shape, 10)) == name
    assert str(network) == f"{name} of width {width:g}"
    assert network != Architecture(name, shape, 10) == Architecture(name, shape, 10, width=1)


@pytest.mark.parametrize(
    ("name", "width", "message"),
    [
        ("resnet18", 0.5, "width is 0.5 and network is resnet18; network must be one of mlp1, cnn1, cnn2 for it"),
        ("their.network:make", 2.0, "width is 2 and network is their.network:make; network must be one of mlp1, cnn1"),
        ("mlp1", 0.0, "width is 0.0; it must be a finite number above 0"),
        ("mlp1", math.nan, "width is nan; it must be a finite number above 0"),
        ("densenet100", math.inf, "width is inf; it must be a finite number above 0"),
    ],
)
def test_unsupported_width_is_refused(name: str, width: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Architecture(name, COLOUR, 10, width=width)


def test_every_network_is_described_with_its_options() -> None:
    assert list(DEFINITIONS) == list(OPTIONS) == [name for name in DESCRIPTIONS if ":" not in name]
    for name, options in OPTIONS.items():
        for option in ("dropout", "batch_norm"):
            plain = Architecture(name, COLOUR, 10)
            if option in options:
                regularised = Architecture(name, COLOUR, 10, Regularisers(**{option: True}))
                assert (option == "dropout") == (plain.weights.keys() == regularised.weights.keys())
                assert option in DESCRIPTIONS[name]
            else:
                with pytest.raises(ValueError, match=f"{option} is on, but {name} has no such option"):
                    Architecture(name, COLOUR, 10, Regularisers(**{option: True}))


def test_unknown_network_lists_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"network is 'mlp'; it must be one of mlp1, cnn1, cnn2, densenet100, resnet18"
    ):
        Architecture("mlp", GREY, 10)


MLP1 = Architecture("mlp1", (28, 28, 1), 10)


def test_layers_have_the_published_widths() -> None:
    expected = {
        "dense1.weight": (512, 784),
        "dense1.bias": (512,),
        "dense2.weight": (256, 512),
        "dense2.bias": (256,),
        "dense3.weight": (128, 256),
        "dense3.bias": (128,),
        "dense4.weight": (10, 128),
        "dense4.bias": (10,),
    }
    assert expected == {name: values.shape for name, values in MLP1.initial(0).items()}


def test_weights_start_within_glorots_limit_and_biases_zero() -> None:
    weights = MLP1.initial(3)
    limit = math.sqrt(6 / (784 + 512))
    first = weights["dense1.weight"]
    assert 0.999 * limit < np.abs(first).max() <= np.float32(limit)
    assert abs(first.std() - limit / math.sqrt(3)) < 0.01 * limit
    assert not any(values.any() for name, values in weights.items() if name.endswith("bias"))


def test_initial_weights_follow_the_seed() -> None:
    one = MLP1.initial(1)["dense2.weight"]
    repeated = MLP1.initial(1)["dense2.weight"]
    other_seed = MLP1.initial(2)["dense2.weight"]
    np.testing.assert_array_equal(one, repeated)
    assert not np.array_equal(one, other_seed)


NETWORK = Architecture("cnn2", (32, 32, 3), 10, Regularisers(batch_norm=True))


def model(weights: dict[str, np.ndarray], network: Architecture = NETWORK) -> pa.Table:
    row = {
        "seed": 0,
        "network": network_row(network),
        "epochs": 1,
        "best_epoch": 1,
        "history": [],
        "weights": weight_rows(weights),
    }
    return pa.Table.from_pylist([row], schema=add_width(MODEL, network.width))


def test_weights_survive_the_table_exactly_in_order() -> None:
    stream = np.random.default_rng(0)
    original = {"b": stream.normal(size=(3, 4)).astype(np.float32), "a": np.array([np.nan, -0.0], np.float32)}
    restored = weights_of_model(model(original))
    assert list(original) == list(restored)
    for name, values in original.items():
        assert values.shape == restored[name].shape
        assert values.tobytes() == restored[name].tobytes()


def test_transposed_weights_are_stored_row_by_row() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(values, weights_of_model(model({"w": values}))["w"])


def test_network_is_restored_from_the_table() -> None:
    for name, regularisers in (
        ("cnn2", Regularisers(batch_norm=True)),
        ("mlp1", Regularisers(dropout=True)),
        ("clinic.network:make@0123abcd", Regularisers()),
    ):
        network = Architecture(name, (28, 32, 3), 7, regularisers)
        assert network == architecture_of(model({}, network))
    narrow = Architecture("mlp1", (28, 28, 1), 10, width=0.3)
    assert narrow == architecture_of(model({}, narrow))
    assert add_width(MODEL, 1.0) == MODEL  # stored models of the published width remain valid
