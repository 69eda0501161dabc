"""The training task of densities: training rows, tables, and independence of the trainings of a call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from orchestrator.planning.identity import key_of
from tasks.contract.job import Job, marks
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.models.catalog import DensityModel
from tasks.models.counter_rng import member_key
from tasks.models.importance import Estimated, Sampling, estimate_log_density
from tasks.models.vae import mnist
from tasks.training import density, trainer
from tasks.training.density import (
    FITTED,
    REFINED,
    Evaluation,
    Evaluator,
    batch_key,
    density_table,
    fit,
    train_many,
    work,
)
from tasks.training.density_config import (
    DensityTraining,
    Fold,
    RefinedTraining,
    ReleasedFold,
    Row,
    Split,
    fold_of,
    released_fold_of,
)
from tasks.training.density_objective import Elbo
from tasks.training.members import Epoch, Member, Spec, Trained, TrainingError
from tasks.training.recipe import Privacy, Recipe
from tasks.worker.compute_context import ComputeContext, use_context
from tests.support.published_data import mnist as mnist_files

DIGITS = pin(Dataset("digits"))
FOLD = Fold(partition=9, folds=4, number=1)
TINY = DensityTraining(
    DIGITS, seed=3, held_out=FOLD, examples=40, epochs=3, recorded=(1, 3), batch=16, samples=4, drawn=2
)


@pytest.fixture(autouse=True)
def _one_after_another() -> Iterator[None]:
    with use_context(ComputeContext("loop")):
        yield


def recorded_log_p(table: pa.Table, epoch: int) -> NDArray[np.float32]:
    """log p of every observation after an epoch."""
    values: NDArray[np.float32] = table["log_p"][epoch - 1].values.to_numpy(zero_copy_only=False)
    return values


def samples(table: pa.Table) -> NDArray[np.float32]:
    return np.frombuffer(table["samples"][-1].as_py(), np.float32)


# The rows that are trained on


def trained_on(config: DensityTraining) -> list[int]:
    return list(map(int, density.member_of(config, load(config.data)).rows))


def test_model_trains_on_all_examples_outside_its_fold() -> None:
    folds = fold_of(9, 40, 4)
    assert np.flatnonzero(folds != 1).tolist() == trained_on(TINY)
    left_out = []
    for number in range(4):
        left_out.append(set(range(40)) - set(trained_on(replace(TINY, held_out=Fold(9, 4, number)))))
    assert list(range(40)) == sorted(row for rows in left_out for row in rows)


def test_model_trains_on_all_examples_except_its_row() -> None:
    assert [row for row in range(40) if row != 7] == trained_on(replace(TINY, held_out=Row(7)))
    released = trained_on(replace(TINY, held_out=ReleasedFold(1, 10, 4)))
    assert np.flatnonzero(released_fold_of(1, 40) != 4).tolist() == released
    assert len(released) == 36


def test_model_without_held_out_rows_trains_on_all() -> None:
    assert list(range(40)) == trained_on(replace(TINY, held_out=None))
    everything = replace(TINY, held_out=None, examples=0)
    assert list(range(len(load(DIGITS).train_images))) == trained_on(everything)


def test_evaluation_does_not_change_training_rows() -> None:
    assert trained_on(TINY) == trained_on(replace(TINY, asked="test", recorded=(), drawn=0))


def test_too_many_examples_end_only_that_training() -> None:
    many_more = replace(TINY, held_out=None, examples=1438)
    with pytest.raises(ValueError, match="examples is 1438; digits has 1437 training images"):
        fit(many_more, ())
    row_out_of_range = replace(TINY, held_out=Row(40))
    outcomes = dict(train_many([row_out_of_range, TINY], [(), ()]))
    assert str(outcomes[0]) == "row 40 is held out; the rows are 0 to 39"
    assert fit(TINY, ()) == outcomes[1]


def test_holding_out_only_row_ends_only_that_training() -> None:
    configs = []
    for held_out in (Row(0), None):
        configs.append(replace(TINY, held_out=held_out, examples=1, recorded=(), drawn=0))
    outcomes = dict(train_many(configs, [(), ()]))
    assert str(outcomes[0]) == "the only row is held out; examples must be at least 2"
    assert isinstance(outcomes[1], pa.Table)


@pytest.mark.parametrize("held_out", [FOLD, Row(5)])
def test_held_out_pixels_affect_only_their_log_p(
    held_out: Fold | Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = 5 if isinstance(held_out, Row) else int(np.flatnonzero(fold_of(9, 40, 4) == 1)[0])
    pixels = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8)
    changed = pixels.copy()
    changed[row] = 255 - changed[row]
    tables = []
    for name, split_pixels in (("one", pixels), ("other", changed)):
        mnist_files(tmp_path / name / "mnist", split_pixels, pixels[:10])
        monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / name))
        tables.append(fit(replace(TINY, data=pin(Dataset("mnist")), held_out=held_out), ()))
    other_columns = [name for name in FITTED.names if name not in ("log_p", "effective_samples")]
    assert tables[0].select(other_columns) == tables[1].select(other_columns)
    for epoch in (1, 3):
        assert [row] == np.flatnonzero(recorded_log_p(tables[0], epoch) != recorded_log_p(tables[1], epoch)).tolist()


# The table


def test_table_has_row_for_every_epoch() -> None:
    table = fit(TINY, ())
    assert table.schema == FITTED
    assert table["epoch"].to_pylist() == [1, 2, 3]
    about = {"seed": 3, "partition": 9, "fold": 1, "row": None, "epsilon": None}
    assert [about] * 3 == table.select(list(about)).to_pylist()
    assert [values and len(values) for values in table["log_p"].to_pylist()] == [40, None, 40]
    assert np.isfinite(recorded_log_p(table, 3)).all()
    assert [values is None for values in table["samples"].to_pylist()] == [True, True, False]
    sample_values = samples(table)
    assert sample_values.shape == (2 * 28 * 28,)
    assert 0 <= sample_values.min() < sample_values.max() <= 1
    for name in ("train_loss", "test_loss"):
        losses = table[name].to_pylist()
        assert losses == sorted(losses, reverse=True)


def test_table_names_held_out_row() -> None:
    by_row = fit(replace(TINY, held_out=Row(7), epochs=1, recorded=(1,), drawn=0), ()).to_pylist()[0]
    assert tuple(by_row[name] for name in ("partition", "fold", "row", "samples")) == (None, None, 7, None)
    everything = fit(replace(TINY, held_out=None, epochs=1, recorded=(), drawn=0), ()).to_pylist()[0]
    assert [everything[name] for name in ("partition", "fold", "row", "log_p", "samples")] == [None] * 5
    assert everything["effective_samples"] is None


def test_first_fold_is_not_null() -> None:
    history = [Epoch(1, 1.0, 2.0, math.nan)]
    (row,) = density_table(replace(TINY, held_out=Fold(0, 2, 0)), history, Evaluation()).to_pylist()
    assert row["partition"] == 0
    assert row["fold"] == 0


def test_split_returns_all_test_images() -> None:
    table = fit(replace(TINY, asked="test", drawn=0), ())
    assert len(load(DIGITS).test_images) == len(recorded_log_p(table, 3))
    other_columns = []
    for name in FITTED.names:
        if name not in ("log_p", "effective_samples", "samples"):
            other_columns.append(name)
    assert fit(TINY, ()).select(other_columns) == table.select(other_columns)


def test_impossible_observation_has_infinite_log_p() -> None:
    history = [Epoch(1, 1.0, 2.0, math.nan), Epoch(2, 1.0, 2.0, math.nan)]
    log_p = np.array([-1.5, -math.inf], np.float32)
    table = density_table(replace(TINY, epochs=2, recorded=(2,)), history, Evaluation({2: log_p}))
    assert table["log_p"].to_pylist() == [None, [-1.5, -math.inf]]
    table.validate(full=True)


# Settings that may differ in a call, and settings that are shared


def test_trainings_are_independent_of_call_and_order() -> None:
    # All settings that may differ in a call differ here.
    configs = [
        TINY,
        replace(TINY, seed=8),
        replace(TINY, learning_rate=1e-4),
        replace(TINY, held_out=Row(3), recorded=(2,)),
        replace(TINY, held_out=None, recorded=(), drawn=5),
    ]
    alone = [fit(config, ()) for config in configs]
    assert len({table["train_loss"][-1].as_py() for table in alone}) == len(alone)
    for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1)):
        outcomes = dict(train_many([configs[index] for index in order], [()] * len(order)))
        assert [alone[index] for index in order] == [outcomes[position] for position in range(len(order))]


@pytest.mark.parametrize(
    "changes",
    [
        {"data": Dataset("photos")},
        {"model": DensityModel("conv-vae")},
        {"asked": "test"},
        {"examples": 41},
        {"epochs": 4},
        {"batch": 8},
        {"samples": 5},
        {"view": 1},
        {"afresh": True},
        {"outliers": 0.1},
        {"privacy": Privacy(3.0)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_settings_may_not_differ_in_call(changes: Mapping[str, object]) -> None:
    assert batch_key(TINY) != batch_key(replace(TINY, **changes))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot share a call"):
        list(train_many([TINY, replace(TINY, **changes)], [(), ()]))  # type: ignore[arg-type]


def test_log_p_is_importance_sampling_of_trained_weights() -> None:
    config = replace(TINY, view=6, samples=8)
    images = load(DIGITS)
    learning = Elbo(mnist(images.shape))
    member = Member(3, np.flatnonzero(fold_of(9, 40, 4) != 1), learning_rate=1e-3)
    spec = Spec(learning, Recipe(3, 16, 1e-3, epsilon=1e-8), images)
    ((_, model),) = trainer.train_many(spec, [member], torch.device("cpu"))
    assert isinstance(model, Trained)
    tensors = {}
    for name, values in model.weights.items():
        tensors[name] = torch.from_numpy(values)[None]
    pixels = torch.from_numpy(images.train_images[:40].reshape(40, -1).copy())
    expected = estimate_log_density(
        learning.vae, tensors, pixels, torch.arange(40), torch.tensor([member_key(3)]), Sampling(8, seed=6)
    )
    table = fit(config, ())
    assert expected.log_p[0].float().tolist() == recorded_log_p(table, 3).tolist()
    assert expected.effective_samples is not None
    assert expected.effective_samples[0].float().tolist() == table["effective_samples"][2].as_py()
    assert [epoch.train_loss for epoch in model.history] == table["train_loss"].to_pylist()
    sample_images = learning.sample(tensors, torch.tensor([member_key(3)]), 2)
    assert sample_images.flatten().tolist() == samples(table).tolist()


@pytest.mark.parametrize("split", ["train", "test"])
def test_models_share_view_unless_afresh(split: Split) -> None:
    # The model returns the number of white pixels in its view: for grey pixels it varies with the draws.
    model = DensityModel("tests.tasks.models.own_densities:Counting")
    config = replace(TINY, model=model, asked=split, epochs=1, recorded=(1,), drawn=0)
    log_p = {
        (seed, view, afresh): recorded_log_p(fit(replace(config, seed=seed, view=view, afresh=afresh), ()), 1).tolist()
        for seed in (1, 2)
        for view in (0, 1)
        for afresh in (False, True)
    }
    assert len({tuple(values) for values in log_p.values()}) == 6
    for view in (0, 1):
        assert log_p[1, view, False] == log_p[2, view, False]
        assert log_p[1, view, True] != log_p[2, view, True]


# A model without log p


class ConstantDensity:
    """Untrained models, each of which returns its single tensor as log p of every observation."""

    def __init__(self, refused_value: float = math.nan) -> None:
        self.refuses = refused_value
        self.batch_sizes: list[int] = []

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        self.batch_sizes.append(len(members))
        assert len(rows) == len(pixels)
        if (tensors["says"] == self.refuses).any():
            raise ValueError("this one has no answer")
        log_p = tensors["says"].double()[:, None].expand(-1, len(pixels)).clone()
        return Estimated(log_p, log_p.abs())


class Drawless(ConstantDensity):
    """Models with log p but, if the tensor is -7, without samples; the others draw uniform grey."""

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        if (tensors["says"] == -7).any():
            raise ValueError("this one draws no images")
        return tensors["says"][:, None, None].expand(-1, count, 36).clone()


def evaluate(learning: ConstantDensity, *says: float, epoch: int = 1, sample_count: int = 0) -> Evaluator:
    """The evaluator of models after an epoch, on three observations."""
    images = Images(
        np.zeros((3, 6, 6, 1), np.uint8), np.zeros(3, int), np.zeros((2, 6, 6, 1), np.uint8), np.zeros(2, int), 1
    )
    configs = []
    for seed in range(len(says)):
        configs.append(replace(TINY, held_out=None, examples=3, seed=seed, drawn=sample_count))
    evaluator = Evaluator(learning, configs, images)  # type: ignore[arg-type]
    evaluator.watch([(index, epoch) for index in range(len(says))], {"says": torch.tensor(says)})
    return evaluator


@pytest.mark.parametrize("invalid", [math.nan, math.inf])
def test_invalid_log_p_ends_only_its_model(invalid: float) -> None:
    evaluations = evaluate(ConstantDensity(), -1.5, invalid, -math.inf).evaluations
    assert str(evaluations[1].error) == f"log p of observation 0 is {invalid} after epoch 1"
    assert evaluations[1].log_p == {}
    assert evaluations[0].log_p[1].tolist() == [-1.5] * 3
    assert evaluations[2].log_p[1].tolist() == [-math.inf] * 3
    assert evaluations[0].effective_samples[1].tolist() == [1.5] * 3
    assert evaluations[2].effective_samples[1].tolist() == [math.inf] * 3


def test_failing_model_is_not_evaluated_again() -> None:
    learning = ConstantDensity(refused_value=-7.0)
    evaluator = evaluate(learning, -1.5, -7.0, -2.5)
    assert str(evaluator.evaluations[1].error) == "this one has no answer"
    assert evaluator.evaluations[0].log_p[1][0] == -1.5
    assert evaluator.evaluations[2].log_p[1][0] == -2.5
    assert learning.batch_sizes == [3, 1, 1, 1]
    evaluator.watch([(index, 3) for index in range(3)], {"says": torch.tensor([-1.5, -7.0, -2.5])})
    assert learning.batch_sizes == [3, 1, 1, 1, 2]
    assert [set(evaluator.evaluations[index].log_p) for index in range(3)] == [{1, 3}, set(), {1, 3}]


def test_model_without_samples_ends_alone() -> None:
    early = evaluate(Drawless(), 0.25, -7.0, epoch=2, sample_count=2).evaluations
    assert all(evaluation.samples is None and evaluation.error is None for evaluation in early.values())
    evaluations = evaluate(Drawless(), 0.25, -7.0, 0.75, epoch=3, sample_count=2).evaluations
    assert [evaluation.error and str(evaluation.error) for evaluation in evaluations.values()] == [
        None,
        "this one draws no images",
        None,
    ]
    assert [float(evaluations[index].samples.mean()) for index in (0, 2)] == [0.25, 0.75]  # type: ignore[union-attr]


def test_evaluation_keeps_no_other_models_log_p() -> None:
    assert all(
        evaluation.log_p[1].base is None for evaluation in evaluate(ConstantDensity(), -1.0, -2.0).evaluations.values()
    )


def test_missing_log_p_is_error_of_its_training() -> None:
    outcomes = dict(train_many([unsound(0), unsound(1), unsound(3)], [()] * 3))
    assert isinstance(outcomes[1], ValueError)
    assert "log_prob returns nan for observation 0" in str(outcomes[1])
    assert fit(unsound(0), ()) == outcomes[0]
    assert fit(unsound(3), ()) == outcomes[2]
    with pytest.raises(ValueError, match="log_prob returns nan for observation 0"):
        fit(unsound(1), ())


def unsound(seed: int) -> DensityTraining:
    model = DensityModel("tests.tasks.models.own_densities:Unsound")
    return replace(TINY, model=model, seed=seed, examples=20, epochs=1, recorded=(1,), drawn=0)


def test_diverging_training_ends_alone() -> None:
    wild = replace(TINY, learning_rate=1e30)
    outcomes = dict(train_many([wild, TINY], [(), ()]))
    assert isinstance(outcomes[0], TrainingError)
    assert "is not finite" in str(outcomes[0])
    assert fit(TINY, ()) == outcomes[1]


# The config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"examples": -1}, "examples is -1; it must be at least 0"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"samples": 0}, "samples is 0; it must be at least 1"),
        ({"view": -1}, "view is -1; it must be at least 0"),
        ({"drawn": -1}, "drawn is -1; it must be at least 0"),
        ({"asked": "both"}, "asked is 'both'; it must be one of train, test"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a finite number above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan; it must be a finite number above 0"),
        ({"learning_rate": math.inf}, "learning_rate is inf; it must be a finite number above 0"),
        ({"outliers": 1.0}, "outliers is 1.0; it must be a share from 0 to below 1"),
        ({"outliers": -0.1}, "outliers is -0.1; it must be a share from 0 to below 1"),
        ({"recorded": (0, 3)}, r"recorded is \(0, 3\); it must be epochs from 1 to 3, ascending"),
        ({"recorded": (1, 4)}, r"recorded is \(1, 4\); it must be epochs from 1 to 3, ascending"),
        ({"recorded": (3, 1)}, r"recorded is \(3, 1\); it must be epochs from 1 to 3, ascending"),
        ({"recorded": (1, 1)}, r"recorded is \(1, 1\); it must be epochs from 1 to 3, ascending"),
        ({"model": DensityModel("gan")}, "model is 'gan'; it must be one of vae, conv-vae"),
        ({"width": 0.0}, "width is 0.0; it must be a finite number above 0"),
        (
            {"model": DensityModel("conv-vae"), "width": 0.5},
            "width is 0.5 and model is conv-vae; model must be one of vae for it",
        ),
        (
            {"model": DensityModel("conv-vae"), "privacy": Privacy(1.0)},
            "privacy is set and model is conv-vae; it must be vae",
        ),
        ({"model": DensityModel("mine.flows:make"), "privacy": Privacy(1.0)}, "privacy is set and model is mine"),
        (
            {"precision": "bfloat16", "privacy": Privacy(1.0)},
            "privacy is set and precision is bfloat16; it must be float32",
        ),
        ({"model": DensityModel("mine.flows:make"), "outliers": 0.1}, "it must be 0 for your own model"),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_named(changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("partition", "folds", "number", "message"),
    [
        (-1, 2, 0, "partition is -1; it must be at least 0"),
        (0, 1, 0, "folds is 1; it must be at least 2"),
        (0, 2, 2, "number is 2; it must be from 0 to 1"),
        (0, 2, -1, "number is -1; it must be from 0 to 1"),
    ],
)
def test_invalid_fold_is_refused(partition: int, folds: int, number: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fold(partition, folds, number)


def test_negative_row_is_refused() -> None:
    with pytest.raises(ValueError, match="row is -1; it must be at least 0"):
        Row(-1)


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ((0.0, 1e-5, 1.0), "epsilon is 0.0; it must be a finite number above 0"),
        ((math.inf, 1e-5, 1.0), "epsilon is inf; it must be a finite number above 0"),
        ((math.nan, 1e-5, 1.0), "epsilon is nan; it must be a finite number above 0"),
        ((1.0, 0.0, 1.0), "delta is 0.0; it must be between 0 and 1"),
        ((1.0, 1.0, 1.0), "delta is 1.0; it must be between 0 and 1"),
        ((1.0, 1e-5, 0.0), "clip is 0.0; it must be a finite number above 0"),
    ],
)
def test_invalid_privacy_is_refused(privacy: tuple[float, float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Privacy(*privacy)


def test_the_task_is_marked() -> None:
    mark = marks(fit)
    assert mark.name == "generator.fit"
    assert mark.version == 2
    assert mark.gpus == 1.0
    assert mark.trains == 1
    assert train_many == mark.many
    assert batch_key == mark.batch_key


@pytest.mark.trained
def test_results_change_only_with_version() -> None:
    table = fit(replace(TINY, epochs=1, recorded=(1,)), ())
    log_p = recorded_log_p(table, 1)
    sample_values = samples(table)
    statistics = [
        table["train_loss"][0].as_py(),
        table["test_loss"][0].as_py(),
        log_p.mean(),
        log_p.std(),
        sample_values.std(),
    ]
    assert marks(fit).version == 2
    # Processors differ in the last digit of a product, and the first steps of Adam amplify the difference.
    assert pytest.approx(statistics, rel=2e-4) == [702.8965, 672.8895, -667.1751, 5.8326, 0.034472]


def test_narrow_model_is_another_smaller_training() -> None:
    narrow = replace(TINY, width=0.25)
    assert fit(TINY, ()) == fit(replace(TINY, width=1.0), ())
    table = fit(narrow, ())
    assert (table.schema, recorded_log_p(table, 3).tolist() == recorded_log_p(fit(TINY, ()), 3).tolist()) == (
        FITTED,
        False,
    )
    assert batch_key(narrow) != batch_key(TINY)
    assert density.chain_state(TINY).training != density.chain_state(narrow).training
    wide = work(TINY).amounts
    less = work(narrow).amounts
    assert wide.keys() == less.keys()
    assert all(0.25 < less[unit] / wide[unit] < 0.4 for unit in wide)


def test_refined_training_has_own_key_and_column() -> None:
    fields: dict[str, Any] = {field.name: getattr(TINY, field.name) for field in dataclasses.fields(TINY)}
    refined = RefinedTraining(**fields, refine=2)
    assert key_of(Job(fit, TINY, ()), ()) != key_of(Job(fit, refined, ()), ())
    plain = fit(TINY, ())
    fitted = fit(refined, ())
    assert plain.schema == FITTED
    assert fitted.schema == REFINED
    assert plain["effective_samples"].to_pylist() == fitted["encoder_effective_samples"].to_pylist()
    assert plain["train_loss"].to_pylist() == fitted["train_loss"].to_pylist()
    assert plain["log_p"].to_pylist() != fitted["log_p"].to_pylist()
    with pytest.raises(ValueError, match="refinement_steps is 2; it must be 0 for your own model"):
        RefinedTraining(**(fields | {"model": DensityModel("own:pixels")}), refine=2)


def test_one_more_row_keeps_private_mechanism() -> None:
    rows = np.arange(41)
    config = replace(TINY, held_out=None, batch=20)
    assert density.private_steps(config, Member(1, rows)) == 3
    assert density.private_steps(replace(config, held_out=Row(7)), Member(1, rows[1:])) == 3
    assert density.private_steps(replace(config, held_out=Fold(1, 2, 0)), Member(1, rows[1:])) == 2
