"""Training with differential privacy: its epsilon, its steps, and one result per config."""

import math
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from tasks.contract.extras import OPACUS
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel, Regularisers
from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.layers import Mode
from tasks.models.likelihoods import Binary
from tasks.models.networks import Architecture
from tasks.models.vae import Dense, celeba
from tasks.training import dp_sgd
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining
from tasks.training.density_objective import Elbo
from tasks.training.members import Member, Spec, Trained
from tasks.training.objective import Batch
from tasks.training.recipe import Privacy, Recipe

CPU = torch.device("cpu")
PRIVACY = Privacy(8.0)
CONFIG = DensityTraining(
    Dataset("digits"), examples=60, epochs=2, recorded=(1, 2), batch=20, samples=4, privacy=PRIVACY, seed=5
)


def exact(noise: float, steps: int, delta: float) -> float:
    """Epsilon of a Gaussian mechanism applied `steps` times to all rows: Balle & Wang 2018, theorem 8."""
    mu = math.sqrt(steps) / noise
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 1e-9, 100, xtol=1e-12
    )


@pytest.mark.parametrize(("noise", "steps"), [(2.0, 1), (10.0, 30)])
def test_epsilon_without_sampling_matches_gaussian_mechanism(noise: float, steps: int) -> None:
    epsilon = dp_sgd.spent(((noise, 1.0, steps),), 1e-5)
    assert exact(noise, steps, 1e-5) <= epsilon <= exact(noise, steps, 1e-5) + 0.02


def test_unreachable_epsilon_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opacus.accountants.utils.MAX_SIGMA", 1)  # the limit of the search: 1e6 takes a minute
    with pytest.raises(ValueError, match=r"epsilon is 0\.01, which is too small for 6 steps at delta 1e-05"):
        dp_sgd.noise(Privacy(0.01), steps=2, epochs=3)


def test_table_has_log_p_samples_and_epsilon() -> None:
    table = fit(replace(CONFIG, drawn=3), [])
    first, last = table.column("epsilon").to_pylist()
    assert 0 < first < last
    assert 8.0 * (1 - dp_sgd.TOLERANCE) <= last <= 8.0
    log_p = [np.array(values) for values in table.column("log_p").to_pylist()]
    assert [values.shape for values in log_p] == [(60,), (60,)]
    assert np.isfinite(log_p).all()
    assert len(table.column("samples")[-1].as_py()) == 3 * 28 * 28 * 4
    assert table.column("test_loss").to_pylist()[1] < 720  # 1,024 fair coins give 710


def test_result_depends_on_config_only() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fit(CONFIG, [])
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert first.equals(fit(CONFIG, []))
    other_seed = fit(replace(CONFIG, seed=6), [])
    assert first.column("train_loss").to_pylist() != other_seed.column("train_loss").to_pylist()


def test_training_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        fit(replace(CONFIG, privacy=Privacy(0.05), batch=60, epochs=1, recorded=()), [])
    assert caught_warnings == []
    assert tuple(capfd.readouterr()) == ("", "")


def train_model(vae: Dense, rows: int, batch: int, epochs: int = 1) -> tuple[Trained, Spec, DensityTraining]:
    images = load(Dataset("digits"))
    config = replace(CONFIG, examples=rows, batch=batch, epochs=epochs, recorded=(), seed=3)
    spec = Spec(Elbo(vae), Recipe(epochs, batch, 1e-3, epsilon=1e-8), images)
    ((_, model),) = dp_sgd.train_many(spec, [Member(3, np.arange(rows))], PRIVACY, [-(-rows // batch)], CPU)
    assert isinstance(model, Trained), model
    return model, spec, config


def test_step_adds_noise_to_clipped_gradients() -> None:
    rows = 6
    model, spec, _ = train_model(Dense(Binary((28, 28, 1)), 3, (7, 5)), rows, batch=rows)  # one step, of every row
    pixels = spec.images.train_images[:rows].reshape(rows, -1)
    assert_stepped(model, spec, pixels, np.zeros(rows, np.int64), 3)


@pytest.mark.parametrize("network", ["mlp1", "cnn1"])
def test_classifier_step_adds_noise_to_clipped_gradients(network: str) -> None:
    images = load(Dataset("digits"))
    rows = 4
    spec = Spec(CrossEntropy(Architecture(network, (28, 28, 1), 10)), Recipe(1, rows, 1e-3, epsilon=1e-8), images)
    replacement = np.full((28, 28, 1), 200, np.uint8)
    ((_, model),) = dp_sgd.train_many(spec, [Member(3, np.arange(rows), {2: replacement})], PRIVACY, [1], CPU)
    assert isinstance(model, Trained), model
    pixels = images.train_images[:rows].reshape(rows, -1).copy()
    pixels[2] = replacement.reshape(-1)
    assert_stepped(model, spec, pixels, images.train_labels[:rows].astype(np.int64), 3)
    assert 0 < model.history[0].validation_accuracy < 1
    assert pytest.approx(model.epsilons, rel=2 * dp_sgd.TOLERANCE) == [8.0]


def assert_stepped(model: Trained, spec: Spec, pixels: NDArray[np.uint8], labels: NDArray[np.int64], seed: int) -> None:
    """Check that one step with PRIVACY on all rows leads to the weights of the model."""
    learning = spec.learning
    rows = len(pixels)
    start = {name: torch.from_numpy(values.copy())[None] for name, values in learning.initial(seed).items()}
    weights = [tensor.requires_grad_() for tensor in start.values()]
    mode = Mode(True, CounterRng(torch.tensor([member_key(seed)]), torch.tensor([0])))
    batch = Batch(torch.from_numpy(pixels.copy())[None], torch.from_numpy(labels)[None], mode)
    losses = learning.losses(start, batch)[0]
    assert (rows,) == losses.shape
    total = [torch.zeros_like(weight) for weight in weights]
    for loss in losses:
        gradients = torch.autograd.grad(loss, weights, retain_graph=True)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        assert norm > PRIVACY.clip
        for clipped_sum, gradient in zip(total, gradients, strict=True):
            clipped_sum += gradient * PRIVACY.clip / norm
    stream = dp_sgd.generator(seed, "privacy", CPU)
    deviation = dp_sgd.noise(PRIVACY, 1, 1) * PRIVACY.clip
    for weight, clipped_sum in zip(weights, total, strict=True):
        weight.grad = clipped_sum + torch.normal(0.0, deviation, clipped_sum.shape[1:], generator=stream)
    torch.optim.Adam(weights, 1e-3, eps=1e-8).step()
    for name, weight in start.items():
        # The first step of Adam is the gradient's sign; if noise and gradient cancel, rounding may flip it.
        apart = (weight.detach()[0] - torch.from_numpy(model.weights[name])).abs()
        assert (apart < 1e-6).double().mean() > 0.99
    assert float(losses.detach().mean()) == pytest.approx(model.history[0].train_loss, rel=1e-6)


@pytest.mark.slow
def test_step_without_rows_is_noise_only() -> None:
    # With this seed, two of the six steps draw none of the three rows.
    model, _, _ = train_model(Dense(Binary((28, 28, 1)), 3, (7, 5)), 3, batch=1, epochs=2)
    assert all(np.isfinite(values).all() for values in model.weights.values())


@pytest.mark.slow
def test_private_training_accepts_outlier_component() -> None:
    mixture = fit(replace(CONFIG, outliers=0.5), [])
    alone = fit(replace(CONFIG, outliers=0.0), [])
    assert mixture.column("epsilon").equals(alone.column("epsilon"))
    assert np.isfinite(mixture.column("log_p").to_pylist()).all()
    assert mixture.column("test_loss")[1].as_py() < 600 < alone.column("test_loss")[0].as_py()


@pytest.mark.parametrize("model", ["conv-vae", "package.module:factory"])
def test_models_that_mix_rows_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match=f"privacy is set and model is {model}; it must be vae"):
        replace(CONFIG, model=DensityModel(model))
    spec = Spec(Elbo(celeba()), Recipe(1, 4, 1e-3), load(Dataset("photos#32x32#rgb")))
    with pytest.raises(
        ValueError, match="the model is convolutional autoencoder; privacy requires a network of dense and"
    ):
        dp_sgd.train_many(spec, [Member(1, np.arange(4))], PRIVACY, [1], CPU)
    normalised = Architecture("mlp1", (28, 28, 1), 10, Regularisers(batch_norm=True))
    spec = Spec(CrossEntropy(normalised), Recipe(1, 4, 1e-3), load(Dataset("digits")))
    with pytest.raises(ValueError, match="the model is mlp1 with batch norm; privacy requires a network of dense and"):
        dp_sgd.train_many(spec, [Member(1, np.arange(4))], PRIVACY, [1], CPU)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "rmsprop"}, "privacy is set and optimiser is rmsprop; it must be adam"),
        ({"schedule": ((1, 0.5),)}, r"privacy is set and schedule is \(\(1, 0.5\),\); it must be \(\)"),
        ({"patience": 3}, "privacy is set and patience is 3; it must be 0"),
        ({"precision": "float64"}, "privacy is set and precision is float64; it must be float32"),
        ({"accumulate": 2}, "privacy is set and accumulate is 2; it must be 1"),
    ],
)
def test_unsupported_recipes_are_refused(settings: dict[str, object], message: str) -> None:
    spec = Spec(Elbo(Dense(Binary((28, 28, 1)), 3, (7, 5))), Recipe(2, 4, 1e-3, **settings), load(Dataset("digits")))
    with pytest.raises(ValueError, match=message):
        dp_sgd.train_many(spec, [Member(1, np.arange(4))], PRIVACY, [1], CPU)


@pytest.mark.parametrize("settings", [{"until": 1}, {"after": 0}, {"returns_state": True}])
def test_chain_links_are_refused(settings: dict[str, object]) -> None:
    spec = Spec(Elbo(Dense(Binary((28, 28, 1)), 3, (7, 5))), Recipe(2, 4, 1e-3), load(Dataset("digits")))
    with pytest.raises(ValueError, match="member 0 is a link of a chain; privacy requires a single job"):
        dp_sgd.train_many(spec, [Member(1, np.arange(4), **settings)], PRIVACY, [1], CPU)


def test_missing_opacus_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opacus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(ValueError, match=re.escape(f"requires {OPACUS.advice}")):
        fit(CONFIG, [])
