from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from tasks.audits.unique_feature.canary_selection import RankedImage
from tasks.audits.unique_feature.self_influence import INFLUENCE, Tracing, checkpoint_epochs, influence
from tasks.datasets.catalog import load
from tasks.datasets.features import burn
from tasks.job import marks
from tasks.models.networks import weights_of_model
from tasks.training.classifier import Burnt, Training, train
from tasks.training.members import TrainingError
from tests.tasks.audits.unique_feature.small import LETTER, TRAINING, chosen

SCHEDULED = replace(TRAINING, schedule=((1, 0.25),))


def naive(training: Training) -> np.ndarray:
    """Each image's squared slope, by autograd of an mlp1 written out, image by image: (epochs, images)."""
    images = load(training.data)
    pixels = images.train_images[: training.examples].copy()
    for burnt in training.burnt:
        pixels[burnt.row : burnt.row + 1] = burn(pixels[burnt.row : burnt.row + 1], burnt.feature)
    found = np.zeros((training.epochs, training.examples))
    for epoch in range(1, training.epochs + 1):
        weights = weights_of_model(train(replace(training, epochs=epoch), ()))
        tensors = {name: torch.tensor(values, requires_grad=True) for name, values in weights.items()}
        for row in range(training.examples):
            x = torch.tensor(pixels[row].reshape(-1) / 255, dtype=torch.float32)
            for number in (1, 2, 3, 4):
                x = tensors[f"dense{number}.weight"] @ x + tensors[f"dense{number}.bias"]
                x = x.relu() if number < 4 else x
            loss = functional.cross_entropy(x, torch.tensor(images.train_labels[row]))
            slopes = torch.autograd.grad(loss, list(tensors.values()))
            found[epoch - 1, row] = sum(float(slope.square().sum()) for slope in slopes)
    return found


@pytest.mark.parametrize("burnt", [(), (Burnt(7, LETTER),)])
def test_self_influence_is_the_rates_times_the_squared_slopes_of_every_epoch(burnt: tuple[Burnt, ...]) -> None:
    training = replace(SCHEDULED, burnt=burnt)
    table = influence(Tracing(training), ())
    squares = naive(training)
    assert (INFLUENCE, 48) == (table.schema, len(table))
    assert squares.sum(0) == pytest.approx(table["squared_slopes"].to_numpy(), rel=1e-4)
    expected = 1e-3 * squares[0] + 0.25e-3 * squares[1]
    assert expected == pytest.approx(table["self_influence"].to_numpy(), rel=1e-4)
    assert [[1, 2]] * 48 == table["checkpoints"].to_pylist()
    assert list(range(48)) == table["row"].to_pylist()
    assert load(training.data).train_labels[:48].tolist() == table["label"].to_pylist()


def test_a_canary_by_rank_carries_the_feature_where_it_is_trained_on_and_where_it_is_measured() -> None:
    ranked = Tracing(TRAINING, RankedImage("highest", 2), LETTER)
    by_row = Tracing(replace(TRAINING, burnt=(Burnt(7, LETTER),)))
    assert influence(by_row, ()) == influence(ranked, [chosen(30, 7)])
    assert influence(by_row, ()) != influence(Tracing(TRAINING), ())


def test_fewer_checkpoints_are_the_last_epochs_of_even_parts() -> None:
    one = influence(Tracing(SCHEDULED, checkpoints=1, share=1.0), ())
    assert [[2]] * 48 == one["checkpoints"].to_pylist()
    slopes = one["squared_slopes"].to_numpy()
    assert 0.25e-3 * slopes == pytest.approx(one["self_influence"].to_numpy(), rel=1e-12)


@pytest.mark.parametrize(
    ("losses", "count", "share", "expected"),
    [
        # The fall is 1; .95 of it has passed after the 20th of 40 epochs.
        ([1.0] + [0.5] * 19 + [0.05] * 19 + [0.0, 0.3], 10, 0.95, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        # Evenly spaced and rounded, halves up: 2.5, 5, 7.5, 10.
        ([2.0] + [1.0] * 9 + [0.0], 4, 0.95, [3, 5, 8, 10]),
        # Seven epochs over three checkpoints: 2.33, 4.67, 7.
        ([2.0] + [1.0] * 6 + [0.0, 0.5, 0.5], 3, 1.0, [2, 5, 7]),
        # The fall is over after two epochs: it goes on to as many as there shall be.
        ([2.3, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02], 4, 0.5, [1, 2, 3, 4]),
        # The whole fall ends where the loss is lowest, not where training ends.
        ([2.0, 1.0, 0.5, 0.0, 0.7, 0.9], 1, 1.0, [3]),
        # Fewer epochs than checkpoints: all of them.
        ([2.0, 1.0, 0.5], 10, 0.95, [1, 2]),
        ([2.0, 1.0], 10, 0.95, [1]),
        # A loss that never falls has no such part: the whole training.
        ([1.0, 1.5, 2.0, 1.0, 3.0, 1.2], 2, 0.95, [3, 5]),
        # A share reached exactly is reached.
        ([1.0, 0.5, 0.25, 0.0], 1, 0.75, [2]),
    ],
)
def test_checkpoints_are_spaced_over_the_part_in_which_the_loss_falls(
    losses: list[float], count: int, share: float, expected: list[int]
) -> None:
    assert expected == checkpoint_epochs(losses, count, share)


def test_checkpoints_rise_and_end_with_the_part_whatever_its_length() -> None:
    for length in range(1, 40):
        for count in range(1, 15):
            found = checkpoint_epochs([2.0] + [1.0] * (length - 1) + [0.0], count, 1.0)
            assert min(length, count) == len(found)
            assert sorted(set(found)) == found
            assert (length, True) == (found[-1], found[0] >= 1)


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
            "training burns a feature into row 4; it must burn none beside the canary's",
        ),
    ],
)
def test_a_tracing_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tracing(**({"training": TRAINING} | changes))  # type: ignore[arg-type]


def test_a_training_that_cannot_go_on_has_no_influence() -> None:
    with pytest.raises(TrainingError, match="loss is not finite"):
        influence(Tracing(replace(TRAINING, learning_rate=1e30)), ())


def test_the_task_is_marked() -> None:
    mark = marks(influence)
    assert ("unique_feature.influence", 1, 1.0) == (mark.name, mark.version, mark.gpus)
