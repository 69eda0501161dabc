"""The trainings of the published cells, the paper's numbers for them, and their form at tiny scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.planning.plan import Plan
from tasks.audits.density import AUDIT, PRESETS, tiny
from tasks.audits.density.config import (
    Density,
    KFold,
    Memorization,
    ModelTraining,
    PublishedFolds,
    ScoreMeasure,
    SingleRows,
)
from tasks.audits.density.log_densities import ReleasedFolds
from tasks.audits.density.presets import CELLS, numbers, repeats
from tasks.contract.job import marks
from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel
from tasks.training.density_config import DensityTraining, Fold, ReleasedFold
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining
from tests.support.plans import planned, preset_plan
from tests.support.published_data import black, celeba, cifar10, mnist

TRAINED = [name for name in PRESETS if name not in ("figure1", "figure6")]
CELLS_BY_PRESET = {"mnist3": "MNIST, 1e-3", "mnist4": "MNIST, 1e-4", "cifar10": "CIFAR-10", "celeba": "CelebA"}


TRAIN = 200


def write(root: Path, train: int = TRAIN, test: int = 100) -> Path:
    """Black images as MNIST, CIFAR-10 and CelebA, few of them: plans depend on their number only if all are
    evaluated.
    """
    mnist(root / "mnist", black(train, 28, 28), black(test, 28, 28))
    cifar10(root / "cifar-10-batches-py", black(train, 3072), black(test, 3072))
    celeba(root / "celeba", train, test)
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("published"))


@pytest.fixture(autouse=True)
def _in_place(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(data))


def trainings(plan: Plan) -> dict[tuple[object, ...], list[DensityTraining]]:
    """The links of each training, first to last."""
    links_by_training: dict[tuple[object, ...], list[DensityTraining]] = {}
    for job in plan.jobs.values():
        if marks(job.function).name == "generator.fit":
            config = job.config
            name = config.data, config.seed, config.learning_rate, config.outliers, config.privacy
            links_by_training.setdefault(name, []).append(config)
    return links_by_training


@pytest.mark.parametrize("name", CELLS_BY_PRESET)
def test_cell_has_101_trainings(name: str) -> None:
    links_by_training = trainings(preset_plan("density", name))
    folds = []
    for links in links_by_training.values():
        if links[-1].held_out is not None:
            folds.append(links[-1].held_out)
    assert len(links_by_training) == 101
    assert len(set(folds)) == 100
    assert {(10, number) for number in range(10)} == {
        (fold.folds, fold.number) for fold in folds if isinstance(fold, Fold)
    }
    assert len({fold.partition for fold in folds if isinstance(fold, Fold)}) == 10


def test_log_p_is_evaluated_at_the_papers_epochs() -> None:
    mnist_and_cifar_epochs = {
        "mnist3": tuple(range(5, 101, 5)),
        "mnist4": tuple(range(5, 101, 5)),
        "cifar10": (50, 100),
    }
    for name, epochs in {**mnist_and_cifar_epochs, "celeba": (25, 50)}.items():
        for links in trainings(preset_plan("density", name)).values():
            recorded = [epoch for link in links for epoch in link.recorded]
            assert recorded == ([] if links[-1].held_out is None else list(epochs))
            assert links[-1].samples == (256 if name.startswith("mnist") else 128)


def test_long_trainings_are_chains_of_links() -> None:
    for name, ends in {"mnist3": [100], "cifar10": [50, 100], "celeba": [25, 50]}.items():
        for links in trainings(preset_plan("density", name)).values():
            assert ends == [link.epochs for link in links]


@pytest.mark.parametrize(("name", "cell"), CELLS_BY_PRESET.items())
def test_presets_of_the_papers_data_show_its_numbers(name: str, cell: str) -> None:
    (config,) = questions(name)
    assert repeats(config) == cell
    (one_view,) = questions(f"{name}-one-view")
    assert repeats(one_view) == ""
    assert with_fields(one_view, resample_pixels=True) == config
    settings = {
        "estimator": PublishedFolds(),
        "training": replace(config.training, evaluation_interval=10, privacy=LinkedTraining(25)),
        "measures": (ScoreMeasure(),),
        "detectable": 20.0,
        "permutations": 99,
        "draws": 8,
        "seed": 7,
    }
    assert CELLS[cell][1] == numbers(repeats(with_fields(config, **settings)))


@pytest.mark.parametrize("name", CELLS_BY_PRESET)
@pytest.mark.parametrize(
    "settings",
    [
        {"repetitions": 2}, {"estimator": KFold(5)}, {"samples": 64}, {"examples": 1000}, {"resample_pixels": False},
        {"estimator": KFold(evaluation_split="test")}, {"data": Dataset("digits")},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_numbers_are_hidden_under_other_settings(name: str, settings: dict[str, object]) -> None:
    (config,) = questions(name)
    assert repeats(with_fields(config, **settings)) == ""


@pytest.mark.parametrize("name", CELLS_BY_PRESET)
@pytest.mark.parametrize(
    "settings",
    [
        {"model": DensityModel("package.module:factory")}, {"epochs": 99}, {"batch": 128}, {"learning_rate": 3e-4},
        {"outlier_share": 0.05}, {"privacy": DifferentialPrivacy(8.0)},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_numbers_are_hidden_for_other_trainings(name: str, settings: dict[str, object]) -> None:
    (config,) = questions(name)
    assert repeats(trained_with(config, **settings)) == ""


@pytest.mark.parametrize("name", [name for name in TRAINED if name.startswith("figure")])
def test_figure_presets_show_the_figures_numbers(name: str) -> None:
    for config in questions(name):
        assert numbers(repeats(config))


def test_numbers_are_hidden_for_other_audits() -> None:
    (config,) = questions("mnist3")
    assert repeats(with_fields(config, estimator=SingleRows(), measures=(ScoreMeasure(),))) == ""
    for name in ("quickstart", "null", "smoke"):
        assert all(repeats(with_fields(config, resample_pixels=True)) == "" for config in questions(name))


def questions(name: str) -> list[Memorization]:
    """The questions of a preset for which models are trained."""
    result = []
    for cell in AUDIT.cells(name):
        if isinstance(cell.question, Memorization):
            result.append(cell.question)
    return result


def with_fields(config: Memorization, **fields: object) -> Memorization:
    return replace(config, **fields)  # type: ignore[arg-type]


def trained_with(config: Memorization, **settings: Any) -> Memorization:
    return replace(config, training=replace(config.training, **settings))


def test_mitigations_are_compared_with_the_plain_model() -> None:
    plain, outliers, private, alone, private_alone = questions("mitigation")
    assert plain == trained_with(outliers, outlier_share=0.0) == trained_with(private, privacy=LinkedTraining())
    assert alone == trained_with(private_alone, privacy=LinkedTraining())


def test_ladder_is_one_audit_at_several_epsilons() -> None:
    plain, *private = questions("ladder")
    guarantees = [config.training.guarantee for config in private]
    assert [guarantee.epsilon for guarantee in guarantees if guarantee] == [64.0, 8.0, 1.0]
    assert {trained_with(config, privacy=LinkedTraining()) for config in private} == {plain}


def test_released_partitions_have_their_own_trainings() -> None:
    (preset,) = questions("mnist3")
    few = with_fields(preset, repetitions=2)
    own_plan, released_plan = map(
        Plan.from_roots,
        planned("density", [Density(few), Density(with_fields(few, estimator=PublishedFolds()))]),
    )
    left_out = []
    for plan in (own_plan, released_plan):
        left_out.append({links[-1].held_out for links in trainings(plan).values()} - {None})
    assert {ReleasedFold(repetition, 10, number) for repetition in range(2) for number in range(10)} == left_out[1]
    assert [{type(fold) for fold in folds} for folds in left_out] == [{Fold}, {ReleasedFold}]
    # The model of all data is the same.
    shared_jobs = []
    for key in set(own_plan.jobs) & set(released_plan.jobs):
        shared_jobs.append(own_plan.jobs[key])
    assert [job.config.held_out for job in shared_jobs if marks(job.function).name == "generator.fit"] == [None]
    scoring = next(job.config for job in released_plan.jobs.values() if marks(job.function).name == "density.scores")
    assert ReleasedFolds(scoring.models.data, TRAIN, (0, 1), 10) == scoring.models


KEPT_FIELDS = ("evaluation_split", "measures", "resample_pixels", "seed")
KEPT_TRAINING_FIELDS = ("model", "width", "batch", "learning_rate", "outlier_share", "guarantee")


@pytest.mark.parametrize("name", TRAINED)
def test_tiny_keeps_measures_and_model_but_shrinks(name: str) -> None:
    for config in questions(name):
        small = tiny(Density(config)).question
        assert isinstance(small, Memorization)
        assert repeats(small) == ""
        assert type(small.estimator) is type(config.estimator)
        assert [getattr(small, field) for field in KEPT_FIELDS] == [getattr(config, field) for field in KEPT_FIELDS]
        before, after = config.training, small.training
        setting_pairs = []
        for field in KEPT_TRAINING_FIELDS:
            setting_pairs.append((getattr(after, field), getattr(before, field)))
        assert all(value == expected for value, expected in setting_pairs), setting_pairs
        assert bool(after.link) == bool(before.link)
        assert bool(after.evaluation_interval) == bool(before.evaluation_interval)
        assert (small.repetitions, small.models <= 3, small.examples <= 120) == (2, True, True)
        assert len(after.recorded) == (2 if before.evaluation_interval else 1)
        assert after.epochs == 2
        assert small.data.name in ("digits", "photos#32x32#rgb", config.data.name)
        assert str(config.planting) == str(small.planting)


def test_tiny_does_not_increase_any_size() -> None:
    for estimator in (KFold(2), SingleRows(1)):
        training = ModelTraining(epochs=1)
        smallest = Memorization(Dataset("digits"), training, estimator, samples=1, permutations=1, draws=1)
        small = tiny(Density(smallest)).question
        assert isinstance(small, Memorization)
        assert small.estimator == estimator
        assert small.training.epochs == 1
        assert small.samples == 1
        assert small.permutations == 1
        assert small.draws == 1


@pytest.mark.parametrize(
    ("name", "shape", "classes"), [("mnist", (28, 28, 1), 10), ("cifar10", (32, 32, 3), 10), ("celeba", (32, 32, 3), 1)]
)
def test_published_data_have_the_published_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, int, int], classes: int
) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(write(tmp_path, 20, 10)))
    images = load(pin(Dataset(name)))
    assert shape == images.shape
    assert classes == images.classes
    assert len(images.train_images) == 20
    assert len(images.test_images) == 10
