import itertools
import math

import numpy as np
import pytest
import torch

from tasks import seeds
from tasks.datasets.images import Images
from tasks.models import mlp1
from tasks.training.adam import Adam
from tasks.training.flat import PAD, Flat
from tasks.training.loop import Model, epoch_order, loop, positions
from tasks.training.members import Epoch, Member, Recipe, Trained, TrainingError
from tasks.training.resident import resident

CPU = torch.device("cpu")
SIDE, CLASSES = 6, 10


def noise(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.default_rng(seed)
    pixels = stream.integers(0, 256, (count, SIDE, SIDE, 1), dtype=np.uint8)
    return pixels, stream.integers(0, CLASSES, count)


@pytest.fixture(scope="module")
def images() -> Images:
    return Images(*noise(330, 1), *noise(70, 2), CLASSES)


def recipe(**changes: object) -> Recipe:
    settings = {"network": "mlp1", "epochs": 2, "patience": 10, "learning_rate": 3e-4, "batch": 32, **changes}
    return Recipe(**settings)  # type: ignore[arg-type]


def member(seed: int, replaced: dict[int, np.ndarray] | None = None) -> Member:
    return Member(seed, np.arange(330), replaced or {})


def outcomes(given: Recipe, images: Images, members: list[Member]) -> list[Trained | Exception]:
    return [outcome for _, outcome in sorted(loop(given, images, members, CPU), key=lambda pair: pair[0])]


def succeeded(given: Recipe, images: Images, members: list[Member]) -> list[Trained]:
    trained = outcomes(given, images, members)
    assert all(isinstance(outcome, Trained) for outcome in trained), trained
    return trained  # type: ignore[return-value]


def bits(trained: Trained) -> tuple[object, ...]:
    return trained.best_epoch, trained.history, *(values.tobytes() for values in trained.weights.values())


def with_autograd(given: Recipe, images: Images, seed: int) -> tuple[dict[str, torch.Tensor], list[Epoch]]:
    """The same training by the book: torch.nn.functional, autograd and torch.optim.Adam, in float64."""
    start = mlp1.initial(seed, SIDE * SIDE, CLASSES)
    weights = {name: torch.from_numpy(values).double().requires_grad_() for name, values in start.items()}
    optimiser = torch.optim.Adam(weights.values(), lr=given.learning_rate, eps=1e-7)
    history = []
    for epoch in range(1, given.epochs + 1):
        order = seeds.generator(seed, "batch order", epoch).permutation(len(images.train_images))
        losses = []
        for start_row in range(0, len(order), given.batch):
            rows = order[start_row : start_row + given.batch]
            loss = cross_entropy(weights, images.train_images[rows], images.train_labels[rows])[0]
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        with torch.no_grad():
            loss, accuracy = cross_entropy(weights, images.test_images, images.test_labels)
        history.append(Epoch(epoch, float(np.mean(losses)), loss.item(), accuracy))
    return weights, history


def cross_entropy(
    weights: dict[str, torch.Tensor], pixels: np.ndarray, labels: np.ndarray
) -> tuple[torch.Tensor, float]:
    values = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.float64) / 255)
    for number in range(1, 5):
        values = torch.nn.functional.linear(values, weights[f"dense{number}.weight"], weights[f"dense{number}.bias"])
        values = values.relu() if number < 4 else values
    truth = torch.from_numpy(np.array(labels))
    accuracy = float((values.argmax(1) == truth).double().mean())
    return torch.nn.functional.cross_entropy(values, truth), accuracy


def test_a_hundred_steps_by_hand_equal_autograd_to_1e_12(images: Images) -> None:
    given = recipe(epochs=10, precision="float64")  # 11 steps an epoch, the last of 10 rows
    (trained,) = succeeded(given, images, [member(5)])
    given = recipe(epochs=trained.best_epoch, precision="float64")
    weights, _ = with_autograd(given, images, 5)
    for name, values in weights.items():
        assert np.abs(values.detach().numpy() - trained.weights[name]).max() < 1e-12
    _, history = with_autograd(recipe(epochs=10, precision="float64"), images, 5)
    for expected, found in zip(history, trained.history, strict=True):
        assert expected.validation_accuracy == found.validation_accuracy
        assert math.isclose(expected.train_loss, found.train_loss, abs_tol=1e-12)
        assert math.isclose(expected.validation_loss, found.validation_loss, abs_tol=1e-12)


def test_adam_steps_as_torchs_does() -> None:
    stream = torch.Generator().manual_seed(0)
    weights = Flat({"a": (9, 64), "b": (10,)}, CPU, torch.float64)
    weights.views["a"].copy_(torch.randn(9, 64, dtype=torch.float64, generator=stream))
    theirs = [torch.nn.Parameter(view.clone()) for view in weights.views.values()]
    optimiser, adam = torch.optim.Adam(theirs, lr=0.01, eps=1e-7), Adam(weights, 0.01)
    for _ in range(100):
        # Small slopes, so that eps matters.
        slopes = [torch.randn(view.shape, dtype=torch.float64, generator=stream) * 1e-6 for view in theirs]
        for parameter, slope in zip(theirs, slopes, strict=True):
            parameter.grad = slope.clone()
        optimiser.step()
        adam.step(slopes)
    for parameter, view in zip(theirs, weights.views.values(), strict=True):
        assert (parameter.detach() - view).abs().max() < 1e-14


def test_adams_first_step_is_the_learning_rate_against_the_slope() -> None:
    weights = Flat({"a": (3,)}, CPU, torch.float32)
    Adam(weights, 0.5).step([torch.tensor([-3.0, 2.0, 0.0])])
    torch.testing.assert_close(torch.tensor([0.5, -0.5, 0.0]), weights.views["a"])


def test_every_part_of_a_flat_buffer_is_a_multiple_of_the_pad() -> None:
    flat = Flat({"a": (3, 5), "b": (10,), "c": (65,)}, CPU, torch.float32)
    starts = [(view.data_ptr() - flat.buffer.data_ptr()) // 4 for view in flat.views.values()]
    assert ([0, PAD, 2 * PAD], [PAD, PAD, 2 * PAD]) == (starts, [len(part) for part in flat.parts])
    flat.views["b"].fill_(1)
    assert 10 == flat.buffer.sum()


def test_a_weights_bits_do_not_depend_on_its_neighbours() -> None:
    """Fused Adam alone and beside others: what the padding is for."""
    slopes = torch.randn(10, generator=torch.Generator().manual_seed(0))
    results = []
    for neighbours in ({}, {"before": (7,)}, {"before": (70,)}):
        flat = Flat({**neighbours, "mine": (10,)}, CPU, torch.float32)
        adam = Adam(flat, 0.01)
        for _ in range(20):
            adam.step([*(torch.ones(shape) for shape in neighbours.values()), slopes])
        results.append(flat.views["mine"].numpy().tobytes())
    assert 1 == len(set(results))


def test_a_member_is_the_same_to_the_bit_alone_in_any_company_and_order(images: Images) -> None:
    letter = np.full((SIDE, SIDE, 1), 255, np.uint8)
    members = [member(0), member(1), member(1, {7: letter}), member(2, {0: letter, 329: letter})]
    given = recipe(epochs=3)
    alone = [bits(succeeded(given, images, [one])[0]) for one in members]
    assert len(set(alone)) == len(members)
    for size in (2, 4):
        for group in itertools.permutations(range(4), size):
            together = succeeded(given, images, [members[index] for index in group])
            assert [alone[index] for index in group] == [bits(trained) for trained in together]


def test_twice_is_the_same_to_the_bit(images: Images) -> None:
    first, second = (bits(succeeded(recipe(), images, [member(3)])[0]) for _ in range(2))
    assert first == second


def test_one_member_without_company_trains_the_same_from_any_number_of_threads(images: Images) -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(bits(succeeded(recipe(), images, [member(3)])[0]))
            assert count == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1]


def test_training_stops_after_patience_and_gives_the_best_epochs_weights(images: Images) -> None:
    # Noise is learnt by heart, so the validation loss soon rises.
    given = recipe(epochs=60, patience=3, learning_rate=3e-3)
    (trained,) = succeeded(given, images, [member(0)])
    losses = [epoch.validation_loss for epoch in trained.history]
    assert 1 + int(np.argmin(losses)) == trained.best_epoch
    assert trained.best_epoch + 3 == len(losses)
    (unbroken,) = succeeded(recipe(epochs=trained.best_epoch, learning_rate=3e-3), images, [member(0)])
    assert bits(unbroken)[2:] == bits(trained)[2:]


def test_a_better_last_epoch_is_kept_when_the_epochs_run_out(images: Images) -> None:
    (trained,) = succeeded(recipe(epochs=1), images, [member(0)])
    assert (1, 1) == (trained.best_epoch, len(trained.history))


def test_a_loss_that_is_not_finite_ends_its_member_alone(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    initial = mlp1.initial

    def broken(seed: int, inputs: int, classes: int) -> dict[str, np.ndarray]:
        weights = initial(seed, inputs, classes)
        return {name: values * np.float32(1e30 if seed == 1 else 1) for name, values in weights.items()}

    (alone,) = succeeded(recipe(), images, [member(2)])
    monkeypatch.setattr(mlp1, "initial", broken)
    first, second, third = outcomes(recipe(), images, [member(0), member(1), member(2)])
    assert isinstance(second, TrainingError)
    assert "loss is not finite at step 1 (seed 1); try a lower learning rate" == str(second)
    assert isinstance(first, Trained)
    assert isinstance(third, Trained)
    assert bits(alone) == bits(third)


def test_too_high_a_learning_rate_is_named_as_the_cause(images: Images) -> None:
    (outcome,) = outcomes(recipe(learning_rate=1e20), images, [member(0)])
    assert isinstance(outcome, TrainingError)
    assert str(outcome).endswith("(seed 0); try a lower learning rate")


def test_the_step_at_which_a_loss_explodes_is_counted_over_all_epochs(images: Images) -> None:
    model = Model(recipe(), resident(images, CPU), member(6))
    losses = torch.zeros(11)
    losses[[3, 8]] = math.inf
    with pytest.raises(TrainingError, match=r"loss is not finite at step 26 \(seed 6\)"):
        model.check(losses, epoch=3)


def test_seeds_differ(images: Images) -> None:
    one, other = succeeded(recipe(epochs=1), images, [member(0), member(1)])
    assert bits(one) != bits(other)


def test_a_replaced_row_trains_as_if_the_data_held_it(images: Images) -> None:
    letter = np.random.default_rng(9).integers(0, 256, (SIDE, SIDE, 1), dtype=np.uint8)
    changed = images.train_images.copy()
    changed[41] = letter
    held = Images(changed, images.train_labels, images.test_images, images.test_labels, CLASSES)
    (replaced,) = succeeded(recipe(), images, [member(0, {41: letter})])
    (plain,) = succeeded(recipe(), held, [member(0)])
    assert bits(plain) == bits(replaced)


def test_a_member_sees_its_own_rows_only(images: Images) -> None:
    rows = np.arange(0, 330, 2)
    fewer = Images(images.train_images[::2], images.train_labels[::2], images.test_images, images.test_labels, CLASSES)
    (chosen,) = succeeded(recipe(), images, [Member(4, rows)])
    (all_of_fewer,) = succeeded(recipe(), fewer, [Member(4, np.arange(165))])
    assert bits(all_of_fewer) == bits(chosen)


def test_orders_are_permutations_that_change_with_epoch_and_seed() -> None:
    orders = [epoch_order(Member(seed, np.arange(10, 60)), epoch).tolist() for seed in (0, 1) for epoch in (1, 2)]
    assert [list(range(10, 60))] * 4 == [sorted(order) for order in orders]
    assert 4 == len({tuple(order) for order in orders})


def test_a_replaced_row_is_found_where_the_order_puts_it() -> None:
    order = np.array([4, 2, 9, 7, 1])
    found = positions(order, {1: torch.zeros(1), 2: torch.zeros(1), 9: torch.zeros(1), 5: torch.zeros(1)}, 2)
    assert {0: [(1, 2)], 1: [(0, 9)], 2: [(0, 1)]} == found
