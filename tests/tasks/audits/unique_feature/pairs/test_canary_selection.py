"""Choice of canaries: drawn in a fixed order, or by the self-influence of their images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional

from tasks.audits.unique_feature.pairs.canary_selection import (
    CHOSEN,
    INFLUENCE,
    CanaryChoice,
    RankedImage,
    RankedTraining,
    Tracing,
    batch_key,
    canaries,
    canary_row,
    checkpoint_epochs,
    choose_canaries,
    extreme_indices,
    influence,
    train_many,
    train_with_canary,
)
from tasks.contract.job import marks
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, burn
from tasks.models.networks import weights_of_model
from tasks.training import classifier
from tasks.training.classifier import Burnt, Training, train
from tasks.training.members import TrainingError
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature import made_up
from tests.tasks.audits.unique_feature.made_up import LETTER, TRAINING, chosen_rows, configure

RANKED = [(0, 1), (0, 2), (1, 1)]  # seeds and ranks


def ranked_rows(table: pa.Table) -> list[tuple[str, int, int]]:
    return [(row["end"], row["rank"], row["row"]) for row in table.to_pylist()]


def test_canaries_are_half_highest_half_lowest_influence() -> None:
    table = choose_canaries(CanaryChoice(4), [made_up.influence([3.0, 9.0, 1.0, 7.0, 5.0, 2.0], first=20)])
    assert table.schema == CHOSEN
    assert ranked_rows(table) == [("highest", 1, 21), ("highest", 2, 23), ("lowest", 1, 22), ("lowest", 2, 25)]
    first = {"end": "highest", "rank": 1, "row": 21, "label": 1, "self_influence": 9.0, "squared_slopes": 90.0}
    assert first == table.to_pylist()[0]


def test_odd_canary_has_high_influence() -> None:
    table = choose_canaries(CanaryChoice(3), [made_up.influence([3.0, 9.0, 1.0, 7.0])])
    assert ranked_rows(table) == [("highest", 1, 1), ("highest", 2, 3), ("lowest", 1, 2)]
    assert ranked_rows(choose_canaries(CanaryChoice(1), [made_up.influence([3.0, 9.0, 1.0])])) == [("highest", 1, 1)]


def test_ties_of_influence_go_by_row() -> None:
    equal = [2.0, 2.0, 2.0, 2.0]
    assert ranked_rows(choose_canaries(CanaryChoice(4), [made_up.influence(equal)])) == [
        ("highest", 1, 0),
        ("highest", 2, 1),
        ("lowest", 1, 2),
        ("lowest", 2, 3),
    ]
    # By row, for any order of the table.
    assert extreme_indices(np.array([1.0, 2.0, 1.0, 2.0]), np.array([8, 9, 10, 1]), 2, 2) == ([3, 1], [0, 2])


def test_more_canaries_than_images_are_refused() -> None:
    with pytest.raises(ValueError, match="count is 3; it must be at most 2, the number of training images"):
        choose_canaries(CanaryChoice(3), [made_up.influence([1.0, 2.0])])
    with pytest.raises(ValueError, match="count is 0; it must be at least 1"):
        CanaryChoice(0)


def test_rank_is_resolved_to_its_row() -> None:
    both_ends = pa.concat_tables([made_up.chosen_rows(30, 7), made_up.chosen_rows(11, end="lowest")])
    models = [made_up.influence([1.0]), both_ends]
    assert canary_row(RankedImage("highest", 2), models) == 7
    assert canary_row(RankedImage("lowest", 1), models) == 11
    assert canary_row(42, models) == 42
    assert canary_row(42, ()) == 42
    with pytest.raises(ValueError, match="rank is 2; of the lowest self-influence 1 images were chosen"):
        canary_row(RankedImage("lowest", 2), models)
    with pytest.raises(ValueError, match="no input is a table of selected canaries"):
        canary_row(RankedImage("lowest", 1), models[:1])


@pytest.mark.parametrize(
    ("end", "rank", "message"),
    [
        ("middle", 1, "end is 'middle'; it must be one of highest, lowest"),
        ("lowest", 0, "rank is 0; it must be at least 1"),
    ],
)
def test_impossible_rank_is_refused(end: str, rank: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankedImage(end, rank)  # type: ignore[arg-type]


def test_canary_by_rank_trains_an_identical_model() -> None:
    table = made_up.chosen_rows(30, 7)
    configs = []
    for seed, rank in RANKED:
        configs.append(RankedTraining(replace(TRAINING, seed=seed), RankedImage("highest", rank), LETTER))
    by_row = []
    for seed, rank in RANKED:
        by_row.append(classifier.train(replace(TRAINING, seed=seed, burnt=(Burnt((30, 7)[rank - 1], LETTER),)), ()))
    tables_by_index = dict(train_many(configs, [[table]] * len(configs)))
    assert by_row == [tables_by_index[index] for index in range(len(configs))]
    assert by_row[0] == train_with_canary(configs[0], [table])
    assert by_row[0] != by_row[1]


def test_missing_rank_ends_only_its_training() -> None:
    available = RankedTraining(TRAINING, RankedImage("highest", 1), LETTER)
    absent = RankedTraining(TRAINING, RankedImage("highest", 2), LETTER)
    results = dict(train_many([absent, available], [[made_up.chosen_rows(3)]] * 2))
    assert str(results[0]) == "rank is 2; of the highest self-influence 1 images were chosen"
    assert train_with_canary(available, [made_up.chosen_rows(3)]) == results[1]
    with pytest.raises(ValueError, match="rank is 2"):
        train_with_canary(absent, [made_up.chosen_rows(3)])


def test_trainings_with_other_seeds_share_a_call() -> None:
    first = RankedTraining(TRAINING, RankedImage("highest", 1), LETTER)
    second = RankedTraining(replace(TRAINING, seed=9), RankedImage("lowest", 2), LETTER)
    longer = RankedTraining(replace(TRAINING, epochs=3), RankedImage("highest", 1), LETTER)
    assert batch_key(first) == batch_key(second)
    assert batch_key(first) != batch_key(longer)
    with pytest.raises(ValueError, match="cannot share a call"):
        list(train_many([first, longer], [[made_up.chosen_rows(3)]] * 2))


def test_training_with_another_feature_is_refused() -> None:
    with pytest.raises(
        ValueError, match="training burns a feature into row 4; it must burn none except for the canary's"
    ):
        RankedTraining(replace(TRAINING, burnt=(Burnt(4, LETTER),)), RankedImage("lowest", 1), LETTER)


def test_training_task_shares_calls() -> None:
    mark = marks(train_with_canary)
    assert mark.name == "unique_feature.train_ranked"
    assert mark.gpus == 1.0
    assert train_many == mark.many
    assert batch_key == mark.batch_key


SCHEDULED = replace(TRAINING, schedule=((1, 0.25),))


def squared_slopes_by_autograd(training: Training) -> np.ndarray:
    """Each image's squared slope, from autograd of an explicit mlp1, image by image: (epochs, images)."""
    images = load(training.data)
    pixels = images.train_images[: training.examples].copy()
    for burnt in training.burnt:
        pixels[burnt.row : burnt.row + 1] = burn(pixels[burnt.row : burnt.row + 1], burnt.feature)
    squares = np.zeros((training.epochs, training.examples))
    for epoch in range(1, training.epochs + 1):
        weights = weights_of_model(train(replace(training, epochs=epoch), ()))
        tensors = {}
        for name, values in weights.items():
            tensors[name] = torch.tensor(values, requires_grad=True)
        for row in range(training.examples):
            x = torch.tensor(pixels[row].reshape(-1) / 255, dtype=torch.float32)
            for number in (1, 2, 3, 4):
                x = tensors[f"dense{number}.weight"] @ x + tensors[f"dense{number}.bias"]
                x = x.relu() if number < 4 else x
            loss = functional.cross_entropy(x, torch.tensor(images.train_labels[row]))
            slopes = torch.autograd.grad(loss, list(tensors.values()))
            squares[epoch - 1, row] = sum(float(slope.square().sum()) for slope in slopes)
    return squares


@pytest.mark.parametrize("burnt", [(), (Burnt(7, LETTER),)])
def test_self_influence_is_rates_times_squared_slopes(burnt: tuple[Burnt, ...]) -> None:
    training = replace(SCHEDULED, burnt=burnt)
    table = influence(Tracing(training), ())
    squares = squared_slopes_by_autograd(training)
    assert table.schema == INFLUENCE
    assert len(table) == 48
    assert squares.sum(0) == pytest.approx(table["squared_slopes"].to_numpy(), rel=1e-4)
    expected = 1e-3 * squares[0] + 0.25e-3 * squares[1]
    assert expected == pytest.approx(table["self_influence"].to_numpy(), rel=1e-4)
    assert table["checkpoints"].to_pylist() == [[1, 2]] * 48
    assert list(range(48)) == table["row"].to_pylist()
    assert load(training.data).train_labels[:48].tolist() == table["label"].to_pylist()


def test_canary_by_rank_carries_its_feature() -> None:
    ranked = Tracing(TRAINING, RankedImage("highest", 2), LETTER)
    by_row = Tracing(replace(TRAINING, burnt=(Burnt(7, LETTER),)))
    assert influence(by_row, ()) == influence(ranked, [chosen_rows(30, 7)])
    assert influence(by_row, ()) != influence(Tracing(TRAINING), ())


def test_fewer_checkpoints_end_even_parts() -> None:
    single_checkpoint = influence(Tracing(SCHEDULED, checkpoints=1, share=1.0), ())
    assert single_checkpoint["checkpoints"].to_pylist() == [[2]] * 48
    slopes = single_checkpoint["squared_slopes"].to_numpy()
    assert 0.25e-3 * slopes == pytest.approx(single_checkpoint["self_influence"].to_numpy(), rel=1e-12)


@pytest.mark.parametrize(
    ("losses", "count", "share", "expected"),
    [
        # The fall is 1; .95 of the fall has passed after the 20th of 40 epochs.
        ([1.0] + [0.5] * 19 + [0.05] * 19 + [0.0, 0.3], 10, 0.95, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        # Evenly spaced and rounded, halves up: 2.5, 5, 7.5, 10.
        ([2.0] + [1.0] * 9 + [0.0], 4, 0.95, [3, 5, 8, 10]),
        # Seven epochs over three checkpoints: 2.33, 4.67, 7.
        ([2.0] + [1.0] * 6 + [0.0, 0.5, 0.5], 3, 1.0, [2, 5, 7]),
        # The fall ends after two epochs: the part is extended to the number of checkpoints.
        ([2.3, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02], 4, 0.5, [1, 2, 3, 4]),
        # The whole fall ends at the lowest loss, even if training continues.
        ([2.0, 1.0, 0.5, 0.0, 0.7, 0.9], 1, 1.0, [3]),
        # Fewer epochs than checkpoints: every epoch.
        ([2.0, 1.0, 0.5], 10, 0.95, [1, 2]),
        ([2.0, 1.0], 10, 0.95, [1]),
        # A loss that never falls: the whole training.
        ([1.0, 1.5, 2.0, 1.0, 3.0, 1.2], 2, 0.95, [3, 5]),
        # A share reached exactly is reached.
        ([1.0, 0.5, 0.25, 0.0], 1, 0.75, [2]),
    ],
)
def test_checkpoints_cover_the_fall_of_the_loss(
    losses: list[float], count: int, share: float, expected: list[int]
) -> None:
    assert expected == checkpoint_epochs(losses, count, share)


def test_checkpoints_are_ascending_and_reach_the_end() -> None:
    for length in range(1, 40):
        for count in range(1, 15):
            epochs = checkpoint_epochs([2.0] + [1.0] * (length - 1) + [0.0], count, 1.0)
            assert min(length, count) == len(epochs)
            assert sorted(set(epochs)) == epochs
            assert (length, True) == (epochs[-1], epochs[0] >= 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoints": 0}, "checkpoints is 0; it must be at least 1"),
        ({"share": 0.0}, "share is 0.0; it must be above 0 and at most 1"),
        ({"share": 1.5}, "share is 1.5; it must be above 0 and at most 1"),
        ({"canary": RankedImage("lowest", 1)}, "canary is given and feature is not; give both, or neither"),
        ({"feature": LETTER}, "feature is given and canary is not; give both, or neither"),
        (
            {
                "canary": RankedImage("lowest", 1),
                "feature": LETTER,
                "training": replace(TRAINING, burnt=(Burnt(4, LETTER),)),
            },
            "training burns a feature into row 4; it must burn none except for the canary's",
        ),
    ],
)
def test_impossible_tracing_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tracing(**({"training": TRAINING} | changes))  # type: ignore[arg-type]


def test_failed_training_has_no_influence() -> None:
    with pytest.raises(TrainingError, match="loss is not finite"):
        influence(Tracing(replace(TRAINING, learning_rate=1e30)), ())


def test_the_task_is_marked() -> None:
    mark = marks(influence)
    assert mark.name == "unique_feature.influence"
    assert mark.version == 1
    assert mark.gpus == 1.0


def test_null_run_is_evaluated_on_the_drawn_features() -> None:
    null = Glyph(kind="random", seed=1)
    drawn_config = configure(data=Dataset("digits"), drawn=True, canaries=3)
    images = load(Dataset("digits"))
    plain_canaries, null_canaries = (
        canaries(config, config.question, images) for config in (drawn_config, with_settings(drawn_config, burnt=null))
    )
    assert [(canary.image, canary.audited_feature) for canary in plain_canaries] == [
        (canary.image, canary.audited_feature) for canary in null_canaries
    ]
    assert [null] * 3 == [canary.carried_feature for canary in null_canaries]
