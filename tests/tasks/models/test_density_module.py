"""A user's own density model, found by name: supported forms and errors."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tasks.models.catalog import DensityModel
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers, Mode
from tasks.models.likelihoods import Binary, Dequantised, Logit
from tasks.training.custom_density import DensityModule
from tests.tasks.models import own_densities

SHAPE = (4, 3, 2)


def module(factory: str, shape: tuple[int, int, int] = SHAPE) -> DensityModule:
    return DensityModule(f"tests.tasks.models.own_densities:{factory}", shape)


def test_properties_are_found_by_inspection() -> None:
    names = ("Gaussian", "Binary", "Shifted", "Bound", "Slope")
    models = {name: module(name) for name in names}
    preparations = {name: model.preparation for name, model in models.items()}
    assert preparations == {
        "Gaussian": Dequantised(SHAPE),
        "Binary": Binary(SHAPE, padding=0),
        "Shifted": Dequantised(SHAPE),
        "Bound": Logit(SHAPE, mirrored=False),
        "Slope": Dequantised(SHAPE),
    }
    stackable = {name for name, model in models.items() if model.stackable}
    assert stackable == {"Gaussian", "Binary"}
    assert {name for name, model in models.items() if model.log_prob.random(training=False)} == {"Shifted"}
    assert models["Bound"].log_prob.stackable
    assert {name for name, weight in models["Bound"].weights.items() if not weight.learned} == {
        "norm.running_mean",
        "norm.running_var",
    }


def test_default_loss_is_negative_log_density() -> None:
    images = torch.rand((2, 5, 2, 4, 3), generator=torch.Generator().manual_seed(1))
    mode = Mode(True, CounterRng(torch.tensor([3, 4])))
    for name, expected in (
        ("Gaussian", lambda module_of_user, images_seen: -module_of_user.log_prob(images_seen)),
        ("Bound", lambda module_of_user, images_seen: module_of_user.loss(images_seen)),
    ):
        model = module(name)
        starts = [model.module.initial(seed) for seed in (0, 1)]
        tensors = {}
        for key in model.weights:
            tensors[key] = torch.from_numpy(np.stack([start[key] for start in starts]))
        plain = []
        for m in range(2):
            module_of_user = getattr(own_densities, name)((2, 4, 3))
            module_of_user.load_state_dict({key: tensors[key][m] for key in model.weights}, strict=False)
            with torch.random.fork_rng([]), torch.no_grad():
                torch.manual_seed(3 + m)
                plain.append(expected(module_of_user, images[m]))
        losses = model.losses(Layers(tensors, mode), images)
        torch.testing.assert_close(torch.stack(plain), losses)


def test_samples_are_returned_as_pixels() -> None:
    model = module("Gaussian")
    tensors = {}
    for name, values in model.module.initial(0).items():
        tensors[name] = torch.from_numpy(values)
    tensors["log_scale"] = torch.full_like(tensors["log_scale"], math.log(0.05))
    samples = model.samples(tensors, 600, 5)
    assert samples.shape == (600, 24)
    expected = tensors["mean"].permute(1, 2, 0).flatten()
    error = stats.norm.isf(1e-6) * 0.05 / math.sqrt(600)
    assert float((samples.mean(0) - expected).abs().max()) < error
    assert torch.equal(samples, model.samples(tensors, 600, 5))
    assert not torch.equal(samples[:256], samples[256:512])
    wide = tensors | {"log_scale": torch.full_like(tensors["log_scale"], 2.0)}
    assert tuple(float(end) for end in model.samples(wide, 50, 5).aminmax()) == (0, 1)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("absent", "has no function absent; it has Tensor, Shape, Gaussian"),
        ("number", "its factory made a int; it must make a torch.nn.Module"),
        ("grey_alone", "its factory failed: ValueError: for grey images alone, not for 2 channels"),
        ("Mute", r"Mute has no method log_prob\(images\)"),
        ("Scalar", r"log_prob returns \(\) for 4 images; expected log densities \(4,\)"),
        ("Distribution", r"log_prob returns Normal for 4 images; expected log densities \(4,\)"),
        ("Undefined", "log_prob returns NaN for 4 images of 2x4x3"),
        ("Infinite", "log_prob returns inf for 4 images; densities must be finite"),
        ("Unseeded", "log_prob does not follow torch's seed in training; draw with torch alone"),
        ("Started", "its weights do not follow torch's seed; draw them with torch alone"),
        ("Square", "log_prob failed on 4 images of 2x4x3: RuntimeError: shape"),
        ("Blind", "sees is 'grey'; it must be one of dequantised, binary, logit"),
        ("Detached", "log_prob has no gradient in its weights, so that it cannot be trained"),
        (
            "Spare",
            "log_prob does not depend on spare.weight, spare.bias; register tensors that are not learned as buffers",
        ),
        ("Lossy", r"loss returns \(1,\) for 4 images; expected losses \(4,\)"),
    ],
)
def test_unusable_modules_are_refused(factory: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        module(factory)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"network tests.tasks.models.own_densities:{factory}")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("Unsampled", r"has no method sample\(count\), which drawing samples requires"),
        ("Few", r"sample returns \(1, 2, 4, 3\) for 4; expected images \(4, 2, 4, 3\)"),
    ],
)
def test_sampling_requires_a_sample_method(factory: str, message: str) -> None:
    model = module(factory)
    with pytest.raises(ValueError, match=message):
        model.check_samples()
    module("Gaussian").check_samples()


def test_invalid_name_is_refused_before_any_import() -> None:
    with pytest.raises(ValueError, match=r"model is 'theirs:'; write your own model as package\.module:factory"):
        DensityModel("theirs:").check()
