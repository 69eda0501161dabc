"""A user's own density models learn and return log densities of bytes, compared with known answers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.models.catalog import DensityModel
from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.importance import Sampling
from tasks.models.layers import Mode
from tasks.models.likelihoods import fixed_inputs, observation_keys
from tasks.training import trainer
from tasks.training.custom_density import BLOCK, CustomDensity
from tasks.training.density import fit, train_many
from tasks.training.density_config import DensityTraining, Fold
from tasks.training.density_objective import DensityObjective, generative
from tasks.training.members import Member, Spec
from tasks.training.objective import Batch
from tasks.training.recipe import Recipe
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.datasets import scans

SHAPE = (3, 4, 1)
OWN = "tests.tasks.models.own_densities"


def learning(factory: str, shape: tuple[int, int, int] = SHAPE) -> CustomDensity:
    return CustomDensity(f"{OWN}:{factory}", shape)


def images(count: int, shape: tuple[int, int, int] = SHAPE) -> Images:
    """Bytes around a separate mean for each pixel."""
    stream = np.random.default_rng(0)
    means = stream.uniform(60, 200, shape)
    pixels = stream.normal(means, 20, (count + 10, *shape)).clip(0, 255).round().astype(np.uint8)
    labels = np.zeros(count + 10, np.int64)
    return Images(pixels[:count], labels[:count], pixels[count:], labels[count:], 1)


def stack(model: CustomDensity, seeds: list[int]) -> dict[str, Tensor]:
    starts = [model.initial(seed) for seed in seeds]
    result = {}
    for name in model.weights:
        result[name] = torch.from_numpy(np.stack([start[name] for start in starts]))
    return result


def keys(seeds: list[int]) -> Tensor:
    return torch.tensor([member_key(seed) for seed in seeds])


def flat(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels.reshape(len(pixels), -1).copy())


def log_densities(
    model: CustomDensity, seeds: list[int], data: Images, rows: Tensor | None = None, **view: int
) -> Tensor:
    pixels = flat(data.train_images)
    rows = torch.arange(len(pixels)) if rows is None else rows
    return model.log_p(stack(model, seeds), pixels[rows], rows, keys(seeds), Sampling(**view))


def test_log_densities_match_normal_distribution() -> None:
    model = learning("Gaussian")
    data = images(7)
    tensors = stack(model, [1, 2])
    inputs = fixed_inputs(
        model.preparation, flat(data.train_images), observation_keys(0, torch.arange(7)), torch.float64
    )
    for m in range(2):
        mean = tensors["mean"][m].flatten().double()
        log_scale = tensors["log_scale"][m].flatten().double()
        expected = stats.norm.logpdf(inputs, mean, log_scale.exp()).sum(1) - 12 * math.log(256)
        np.testing.assert_allclose(log_densities(model, [1, 2], data)[m], expected, rtol=1e-6)


def test_densities_of_all_bytes_sum_to_one() -> None:
    # A pixel of one byte: the mean over noise of the density of byte + noise is the probability of the byte.
    model = learning("Gaussian", (1, 1, 1))
    tensors = {"mean": torch.full((1, 1, 1, 1), 0.5), "log_scale": torch.full((1, 1, 1, 1), math.log(0.1))}
    all_bytes = torch.arange(256, dtype=torch.uint8)[:, None]
    log_p = model.log_p(tensors, all_bytes, torch.arange(256), keys([0]), Sampling())
    assert abs(float(log_p.exp().sum()) - 1) < 1e-3


def test_models_share_view_unless_afresh() -> None:
    model = learning("Binary")
    data = images(5)
    tensors = {}
    for name, tensor in stack(model, [1]).items():
        tensors[name] = tensor[:1].expand(2, *tensor.shape[1:])
    tensors["logits"] = torch.linspace(-2, 2, 12).view(1, 1, 3, 4).expand(2, -1, -1, -1)
    pixels = flat(data.train_images)
    rows = torch.arange(5)
    same = model.log_p(tensors, pixels, rows, keys([1, 2]), Sampling())
    assert torch.equal(same[0], same[1])
    apart = model.log_p(tensors, pixels, rows, keys([1, 2]), Sampling(afresh=True))
    assert not torch.equal(apart[0], apart[1])
    assert not torch.equal(same, model.log_p(tensors, pixels, rows, keys([1, 2]), Sampling(seed=1)))


def test_random_estimate_approximates_truth() -> None:
    model = learning("Shifted")
    data = images(6)
    tensors = stack(model, [1])
    inputs = fixed_inputs(
        model.preparation, flat(data.train_images), observation_keys(0, torch.arange(6)), torch.float64
    )
    # One hidden N(0, 1) shifts all pixels: the covariance is 1 everywhere, plus the squared scale on the diagonal.
    truth = stats.multivariate_normal(tensors["mean"].flatten().double().numpy(), math.exp(-2) * np.eye(12) + 1)
    expected = truth.logpdf(inputs) - 12 * math.log(256)
    np.testing.assert_allclose(log_densities(model, [1], data)[0], expected, atol=0.6)


def test_random_estimate_is_independent_of_batch() -> None:
    model = learning("Rough")
    data = images(BLOCK + 30)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    all_estimates = log_densities(model, [1, 2], data)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(all_estimates, log_densities(model, [1, 2], data))
    assert torch.equal(all_estimates[1:], log_densities(model, [2], data))
    selected_rows = torch.tensor([BLOCK + 3, 5, 40, BLOCK, 0])
    assert torch.equal(all_estimates[:, selected_rows], log_densities(model, [1, 2], data, selected_rows))
    assert torch.equal(all_estimates[:, :40], log_densities(model, [1, 2], data, torch.arange(40)))


def test_blocks_and_models_have_separate_seeds() -> None:
    model = learning("Rough", (1, 1, 1))
    data = images(2 * BLOCK, (1, 1, 1))
    white = replace(data, train_images=np.full_like(data.train_images, 255))
    same = {}
    for name, tensor in stack(model, [1]).items():
        same[name] = tensor.expand(2, *tensor.shape[1:])
    log_p = model.log_p(same, flat(white.train_images), torch.arange(2 * BLOCK), keys([1, 2]), Sampling())
    noise = log_p[:, :BLOCK] - log_p[:, BLOCK:]
    assert float(noise.std()) > 1e-3
    assert float((log_p[0] - log_p[1]).std()) > 1e-3


def test_module_may_compute_its_own_gradient() -> None:
    model = learning("Slope")
    data = images(3)
    tensors = stack(model, [1])
    inputs = fixed_inputs(
        model.preparation, flat(data.train_images), observation_keys(0, torch.arange(3)), torch.float32
    )
    expected = -(0.5 * (inputs - tensors["mean"].flatten()).square() + 1).sum(1) - 12 * math.log(256)
    torch.testing.assert_close(expected.double(), log_densities(model, [1], data)[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize(("value", "value_text"), [(math.nan, "nan"), (200.0, "inf")])
def test_infinite_log_density_names_model_and_observation(value: float, value_text: str) -> None:
    model = learning("Heavy")
    data = images(3)
    tensors = stack(model, [1, 2])
    tensors["log_scale"][1] = value
    with pytest.raises(
        ValueError, match=rf"own_densities:Heavy: log_prob returns {value_text} for observation 7"
    ) as error:
        model.log_p(tensors, flat(data.train_images), torch.arange(7, 10), keys([1, 2]), Sampling())
    assert "\n" not in str(error.value)


def train_models(
    model: CustomDensity, data: Images, recipe: Recipe, way: str = "auto", models: int = 1
) -> list[trainer.Trained]:
    members = []
    for seed in range(models):
        members.append(Member(seed, np.arange(len(data.train_images))))
    with use_context(ComputeContext(way=way)):  # type: ignore[arg-type]
        outcomes = dict(trainer.train_many(Spec(model, recipe, data), members))
    for outcome in outcomes.values():
        assert isinstance(outcome, trainer.Trained), outcome
    return [outcomes[index] for index in range(models)]  # type: ignore[misc]


FALLING = tuple((epoch, 0.9**epoch) for epoch in range(20, 60))


def test_normal_pixels_learn_mean_and_deviation() -> None:
    data = images(200)
    recipe = Recipe(60, 20, 0.03, schedule=FALLING)
    (model,) = train_models(learning("Gaussian"), data, recipe)
    values = (data.train_images[..., 0] + 0.5) / 256
    np.testing.assert_allclose(model.weights["mean"][0], values.mean(0), atol=2e-3)
    deviation = np.sqrt(values.var(0) + 1 / 12 / 256**2)
    np.testing.assert_allclose(np.exp(model.weights["log_scale"][0]), deviation, rtol=0.02)
    # The remaining loss is the entropy of the fitted normal distribution.
    entropy = 0.5 * np.log(2 * np.pi * np.e * deviation**2).sum()
    assert abs(model.history[-1].train_loss - entropy) < 0.05


def test_binary_pixels_learn_frequency_of_ones() -> None:
    data = images(200)
    (model,) = train_models(learning("Binary"), data, Recipe(60, 20, 0.1, schedule=FALLING))
    expected = data.train_images.mean(0)[..., 0] / 255
    # 200 images, binarised again in each of the about 10 epochs that still matter.
    np.testing.assert_allclose(special.expit(model.weights["logits"][0]), expected, atol=0.03)


@pytest.mark.parametrize("factory", ["Gaussian", "Binary"])
def test_stack_learns_as_each_alone(factory: str) -> None:
    data = images(50)
    alone = train_models(learning(factory), data, Recipe(3, 16, 0.01), "loop", 3)
    together = train_models(learning(factory), data, Recipe(3, 16, 0.01), "stack", 3)
    for single, stacked in zip(alone, together, strict=True):
        for name, values in single.weights.items():
            np.testing.assert_allclose(values, stacked.weights[name], atol=1e-5)
        assert abs(single.history[-1].validation_loss - stacked.history[-1].validation_loss) < 1e-4


def test_padding_and_evaluation_leave_statistics_unchanged() -> None:
    model = learning("Bound")
    data = images(6)
    pixels = flat(data.train_images)[None].expand(2, -1, -1)
    real = torch.tensor([[1, 1, 1, 1, 0, 0]]).expand(2, -1)
    draws = CounterRng(keys([1, 2]))
    labels = torch.zeros(2, 6, dtype=torch.int64)
    tensors = stack(model, [1, 2])
    fewer = stack(model, [1, 2])
    padded = model.losses(tensors, Batch(pixels, labels, Mode(True, draws, real)))
    changed_padding = torch.cat([pixels[:, :4], 255 - pixels[:, 4:]], 1)
    repeated = model.losses(fewer, Batch(changed_padding, labels, Mode(True, draws, real)))
    assert torch.equal(padded[:, :4], repeated[:, :4])
    assert torch.equal(tensors["norm.running_mean"], fewer["norm.running_mean"])
    assert not torch.equal(tensors["norm.running_mean"], stack(model, [1, 2])["norm.running_mean"])
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    losses, right = model.evaluate_rows(tensors, Batch(pixels, labels, Mode(draws=draws)))
    assert tuple(losses.shape) == (2, 6)
    assert right is None
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors.items())


@pytest.mark.parametrize("factory", ["Binary", "Rough"])
def test_evaluation_loss_is_independent_of_row_count(factory: str) -> None:
    model = learning(factory)
    pixels = flat(images(BLOCK + 50).train_images)
    labels = torch.zeros(1, len(pixels), dtype=torch.int64)
    all_losses, fewer = (
        model.evaluate_rows(
            stack(model, [1]), Batch(pixels[None, :n], labels[:, :n], Mode(draws=CounterRng(keys([1]))))
        )[0]
        for n in (BLOCK + 50, BLOCK)
    )
    assert torch.equal(all_losses[:, :BLOCK], fewer)
    assert all_losses.shape == (1, BLOCK + 50)


def test_batch_without_draws_is_refused() -> None:
    model = learning("Gaussian")
    batch = Batch(flat(images(2).train_images)[None], torch.zeros(1, 2, dtype=torch.int64), Mode())
    with pytest.raises(ValueError, match="mode has no draws"):
        model.losses(stack(model, [1]), batch)


def test_custom_model_is_density_objective() -> None:
    objective: DensityObjective = generative(DensityModel(f"{OWN}:Gaussian"), images(3))
    assert isinstance(objective, CustomDensity)
    assert objective.total


def fitting(factory: str, **changes: object) -> DensityTraining:
    training = DensityTraining(
        Dataset("digits"),
        DensityModel(f"{OWN}:{factory}"),
        examples=60,
        epochs=2,
        recorded=(1, 2),
        batch=16,
        held_out=Fold(0, 3, 1),
        drawn=3,
    )
    return replace(training, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("factory", ["Gaussian", "Binary", "Rough", "Bound"])
def test_training_task_accepts_custom_model(factory: str) -> None:
    rows = fit(fitting(factory), ()).to_pylist()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[1]["train_loss"] < rows[0]["train_loss"]
    for row in rows:
        assert np.shape(row["log_p"]) == (60,)
        assert np.isfinite(row["log_p"]).all()
    samples = np.frombuffer(rows[1]["samples"], np.float32)
    assert samples.shape == (3 * 28 * 28,)
    assert 0 <= samples.min() <= samples.max() <= 1


def test_training_is_independent_of_its_call() -> None:
    configs = [fitting("Rough", seed=seed) for seed in (4, 5)]
    together = dict(train_many(configs, [(), ()]))
    for index, config in enumerate(configs):
        assert together[index] == fit(config, ())


def test_missing_sampler_ends_only_that_training() -> None:
    configs = [fitting("Unsampled"), fitting("Unsampled", seed=1, drawn=0)]
    outcomes = dict(train_many(configs, [(), ()]))
    assert "has no method sample(count), which drawing samples requires" in str(outcomes[0])
    assert isinstance(outcomes[0], ValueError)
    assert outcomes[1].num_rows == 2  # type: ignore[union-attr]


def test_unusable_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log_prob returns \(\) for 4 images; expected log densities \(4,\)"):
        fit(fitting("Scalar"), ())


def test_own_images_train_with_any_model(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    for label, name in enumerate(scans.CLASSES):
        for number in range(15):
            colours = np.stack([scans.pixels(label, number + 20 * c, 40, 30) for c in range(3)], 2)
            scans.saved(folder / name / f"{number}.png", colours)
    lines = [f"scans/{name}/{number}.png,{name}" for name in scans.CLASSES for number in range(15)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    for data, model, size in (
        (f"folder:{folder}#28x28#grey", "vae", 28 * 28),
        (f"folder:{folder}#28x28#grey", f"{OWN}:Gaussian", 28 * 28),
        (f"list:{tmp_path / 'list.csv'}#10x12#rgb", f"{OWN}:Gaussian", 10 * 12 * 3),
    ):
        config = DensityTraining(
            Dataset(data), DensityModel(model), epochs=2, recorded=(2,), batch=8, samples=4, drawn=1
        )
        last_row = fit(config, ()).to_pylist()[-1]
        assert np.isfinite(last_row["log_p"]).all()
        assert len(last_row["log_p"]) in range(20, 30)
        assert 4 * size == len(last_row["samples"])
