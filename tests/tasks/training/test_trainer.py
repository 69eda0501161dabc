"""Many models trained together equal a plain training of each, for every order, strategy and interruption."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.datasets.images import Images
from tasks.models.catalog import Regularisers
from tasks.models.networks import Architecture
from tasks.models.vae import Dense, Vae, celeba, cifar10, mnist
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.members import Epoch, Member, Spec, State, Trained, TrainingError
from tasks.training.recipe import Recipe
from tasks.training.trainer import train_many
from tasks.worker.compute_context import ComputeContext, use_context
from tests.tasks.training import plain

CPU = torch.device("cpu")
SIDE = 8
CLASSES = 10
ROWS = 330
RECIPE = Recipe(epochs=2, batch=32, learning_rate=3e-4, patience=10)


def noise(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.default_rng(seed)
    pixels = stream.integers(0, 256, (count, SIDE, SIDE, 1), dtype=np.uint8)
    return pixels, stream.integers(0, CLASSES, count)


@pytest.fixture(scope="module")
def images() -> Images:
    return Images(*noise(ROWS, 1), *noise(70, 2), CLASSES)


def spec(
    images: Images,
    regularisers: Regularisers = Regularisers(),  # noqa: B008
    width: float = 1.0,
    **changes: object,
) -> Spec:
    learning = CrossEntropy(Architecture("mlp1", images.shape, images.classes, regularisers, width))
    return Spec(learning, replace(RECIPE, **changes), images)  # type: ignore[arg-type]


def member(seed: int, replaced: dict[int, np.ndarray] | None = None, **more: object) -> Member:
    return Member(seed, np.arange(ROWS), replaced or {}, **more)  # type: ignore[arg-type]


def outcomes(configuration: Spec, members: Sequence[Member], way: str = "loop", together: int | None = None) -> list:
    with use_context(ComputeContext(way=way, members=together)):  # type: ignore[arg-type]
        results = dict(train_many(configuration, members, CPU))
    assert sorted(results) == list(range(len(members)))
    return [results[index] for index in range(len(members))]


def succeeded(
    configuration: Spec, members: Sequence[Member], way: str = "loop", together: int | None = None
) -> list[Trained]:
    results = outcomes(configuration, members, way, together)
    assert all(isinstance(outcome, Trained) for outcome in results), results
    return results


def bits(model: Trained) -> tuple[object, ...]:
    return model.best_epoch, model.history, *(values.tobytes() for values in model.weights.values())


def assert_close(expected: plain.Plain, model: Trained, within: float) -> None:
    for name, values in expected.weights[model.best_epoch].items():
        scale = max(1, np.abs(values).max())  # running variances are large
        assert np.abs(values - model.weights[name]).max() < within * scale, name
    for expected_epoch, epoch in zip(expected.history, model.history, strict=True):
        np.testing.assert_equal(expected_epoch.validation_accuracy, epoch.validation_accuracy)  # both may be nan
        for expected_loss, found_loss in (
            (expected_epoch.train_loss, epoch.train_loss),
            (expected_epoch.validation_loss, epoch.validation_loss),
        ):
            assert abs(expected_loss - found_loss) < within * max(1, abs(expected_loss))


LETTER = np.full((SIDE, SIDE, 1), 255, np.uint8)
UNEQUAL = [
    member(5),
    Member(6, np.arange(0, ROWS, 2)),  # fewer minibatches than the others
    Member(7, np.arange(321), {3: LETTER, 320: LETTER}),  # the same number, the last one shorter
    Member(8, np.arange(ROWS), learning_rate=1e-3),
]


@pytest.mark.parametrize(
    ("regularisers", "optimiser", "epochs"),
    [
        *(
            (Regularisers(dropout, batch_norm), "adam", 5)
            for dropout, batch_norm in ((False, False), (False, True), (True, False))
        ),
        (Regularisers(dropout=True, batch_norm=True), "adam", 10),
        (Regularisers(dropout=True, batch_norm=True), "rmsprop", 5),
    ],
    ids=str,
)
def test_fifty_steps_equal_reference_training(
    images: Images, regularisers: Regularisers, optimiser: str, epochs: int
) -> None:
    settings = {"epochs": epochs, "precision": "float64", "optimiser": optimiser, "schedule": ((2, 0.1),)}
    configuration = spec(images, regularisers, width=0.25, **settings)  # float64 multiplies all widths in the same way
    expected = [plain.train(configuration, member, epochs) for member in UNEQUAL]
    for way in ("loop", "stack"):
        for reference, model in zip(expected, succeeded(configuration, UNEQUAL, way), strict=True):
            assert_close(reference, model, within=1e-12)


def shrunk(side: int, channels: int, rows: int) -> Images:
    stream = np.random.default_rng(side)
    pixels = stream.integers(0, 256, (rows, side, side, channels), dtype=np.uint8)
    return Images(pixels, stream.integers(0, 4, rows), pixels[:5], stream.integers(0, 4, 5), 4)


def classifier(
    network: str, side: int, channels: int = 1, augmentation: bool = False, batch: int = 8, epochs: int = 2, **on: bool
) -> Spec:
    images = shrunk(side, channels, rows=24)
    architecture = Architecture(network, images.shape, images.classes, Regularisers(**on))
    recipe = replace(RECIPE, batch=batch, epochs=epochs, patience=0)
    return Spec(CrossEntropy(architecture, augmentation), recipe, images)


def generator(vae: Vae, batch: int = 8, epochs: int = 2) -> Spec:
    images = shrunk(28, 1, rows=24) if isinstance(vae, Dense) else shrunk(32, 3, rows=24)
    return Spec(Elbo(vae), replace(RECIPE, batch=batch, epochs=epochs, patience=0, epsilon=1e-8), images)


# Deep networks on small images by small minibatches, as far as batch norm of so few values allows: it amplifies the
# last digit. They take a second and more per reference step, so they have one epoch of three steps.
NETWORKS = {
    "mlp1 augmented": lambda: classifier("mlp1", 8, augmentation=True),
    "cnn1": lambda: classifier("cnn1", 12),
    "cnn1 with everything": lambda: classifier("cnn1", 12, augmentation=True, dropout=True, batch_norm=True),
    "cnn2": lambda: classifier("cnn2", 16, channels=3),
    "cnn2 with everything": lambda: classifier("cnn2", 16, 3, augmentation=True, dropout=True, batch_norm=True),
    "densenet100": lambda: classifier("densenet100", 8, channels=3, batch=4, epochs=1, dropout=True),
    "fully connected autoencoder": lambda: generator(mnist()),
    "autoencoder of cifar10": lambda: generator(cifar10(), batch=6, epochs=1),
    "autoencoder of celeba": lambda: generator(celeba(), batch=6, epochs=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_equals_reference_training(name: str) -> None:
    configuration = NETWORKS[name]()
    configuration = replace(configuration, recipe=replace(configuration.recipe, precision="float64"))
    # Three minibatches an epoch, the last one shorter; the other member has two.
    batch = configuration.recipe.batch
    rows = 3 * batch - batch // 4
    members = [Member(3, np.arange(rows)), Member(4, np.arange(rows - 2 * batch, rows))]
    epochs = configuration.recipe.epochs
    expected = []
    for member in members:
        expected.append(plain.train(configuration, member, epochs, kept_epochs=[epochs]))
    for way, within in (("loop", 1e-12), ("stack", 1e-10)):
        for reference, model in zip(expected, succeeded(configuration, members, way), strict=True):
            assert_close(reference, model, within)


def test_member_is_independent_of_company_order_and_strategy(images: Images) -> None:
    members = [member(0), member(1), member(1, {7: LETTER}), Member(2, np.arange(100), {0: LETTER, 99: LETTER})]
    configuration = spec(images)
    alone = [bits(succeeded(configuration, [single])[0]) for single in members]
    assert len(set(alone)) == len(members)
    # Pairs in either order, and all four in orders that put each member at every position.
    for group in ((0, 1), (1, 0), (2, 3), (3, 2), (0, 1, 2, 3), (3, 0, 1, 2), (2, 3, 0, 1), (1, 2, 3, 0)):
        for way in ("loop", "stack"):
            together = succeeded(configuration, [members[index] for index in group], way)
            assert [alone[index] for index in group] == [bits(model) for model in together]


@pytest.mark.parametrize("regularisers", [Regularisers(dropout=True), Regularisers(True, True)], ids=str)
def test_loop_is_exact_for_every_network(images: Images, regularisers: Regularisers) -> None:
    configuration = spec(images, regularisers)
    alone = [bits(succeeded(configuration, [one])[0]) for one in UNEQUAL]
    assert alone == [bits(model) for model in succeeded(configuration, UNEQUAL)]
    assert alone[::-1] == [bits(model) for model in succeeded(configuration, UNEQUAL[::-1])]


def test_freed_slots_go_to_waiting_members(images: Images) -> None:
    # Members learn noise by heart and so stop early, each at a different epoch.
    configuration = spec(images, epochs=60, patience=3, learning_rate=3e-3)
    members = [Member(seed, np.arange(60 + 40 * seed)) for seed in range(6)]
    alone = [succeeded(configuration, [single])[0] for single in members]
    assert len({len(model.history) for model in alone}) > 2
    for together in (1, 2, 4, 6):
        together_models = succeeded(configuration, members, "stack", together)
        assert [bits(model) for model in alone] == [bits(model) for model in together_models]


def test_members_are_returned_as_they_end_and_counted_before(images: Images) -> None:
    members = [member(0), member(1, until=1), member(2)]
    advances: list[float] = []
    with use_context(ComputeContext(way="stack", advance=advances.append)):
        ended = [index for index, _ in train_many(spec(images, epochs=3), members, CPU)]
    assert ended == [1, 0, 2]
    assert advances == pytest.approx([1 / 3 + 1 + 1 / 3, 2 / 3 + 2 / 3, 2.0])


def test_training_twice_is_identical(images: Images) -> None:
    first, second = (bits(succeeded(spec(images), [member(3)])[0]) for _ in range(2))
    assert first == second


def test_training_is_independent_of_thread_count(images: Images) -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(bits(succeeded(spec(images), [member(3)])[0]))
            assert count == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1]


def test_thread_count_is_unchanged_between_results(images: Images) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in train_many(spec(images), [member(0), member(1)], CPU):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_early_stopping_returns_best_weights(images: Images) -> None:
    (model,) = succeeded(spec(images, epochs=60, patience=3, learning_rate=3e-3), [member(0)])
    losses = [epoch.validation_loss for epoch in model.history]
    assert 1 + int(np.argmin(losses)) == model.best_epoch
    assert model.best_epoch + 3 == len(losses)
    (unbroken,) = succeeded(spec(images, epochs=model.best_epoch, learning_rate=3e-3), [member(0)])
    assert bits(unbroken)[2:] == bits(model)[2:]


def test_last_weights_are_returned_without_patience(images: Images) -> None:
    configuration = spec(images, epochs=12, learning_rate=3e-3, precision="float64")
    (best,) = succeeded(configuration, [member(0)])
    (last,) = succeeded(replace(configuration, recipe=replace(configuration.recipe, patience=0)), [member(0)])
    assert last.best_epoch == 12
    assert len(last.history) == 12
    assert best.best_epoch < 12
    assert_close(plain.train(configuration, member(0), 12), last, within=1e-12)


# Chains


def broken_into_links(configuration: Spec, seed: int, stops: Sequence[int]) -> Iterator[Trained]:
    """Train each link in a separate call, from the state that the previous link returned."""
    state: State | None = None
    for stop in stops:
        (link,) = succeeded(configuration, [member(seed, start=state, until=stop, returns_state=True)])
        state = link.state
        yield link


@pytest.mark.parametrize("regularisers", [Regularisers(), Regularisers(True, True)], ids=str)
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_chain_equals_unbroken_run_bit_for_bit(images: Images, regularisers: Regularisers, optimiser: str) -> None:
    configuration = spec(images, regularisers, epochs=7, optimiser=optimiser, schedule=((3, 0.5),))
    (unbroken,) = succeeded(configuration, [member(4)])
    *_, last = broken_into_links(configuration, 4, [1, 3, 6, 7])
    assert bits(unbroken) == bits(last)


@pytest.mark.parametrize("way", ["loop", "stack"])
def test_links_of_one_call_equal_separate_links(images: Images, way: str) -> None:
    configuration = spec(images, epochs=6)
    apart = list(broken_into_links(configuration, 4, [2, 5, 6]))
    links = [member(4, until=2), member(9), member(4, until=5, after=0), member(4, until=6, after=2)]
    first, other_member, second, third = succeeded(configuration, links, way)
    assert [bits(link) for link in apart] == [bits(first), bits(second), bits(third)]
    assert bits(succeeded(configuration, [member(9)])[0]) == bits(other_member)


def test_links_after_early_stop_return_same_model(images: Images) -> None:
    configuration = spec(images, epochs=60, patience=3, learning_rate=3e-3)
    (unbroken,) = succeeded(configuration, [member(0)])
    stopped = len(unbroken.history)
    links = [member(0, until=2), member(0, until=stopped + 5, after=0), member(0, after=1)]
    models = succeeded(configuration, links)
    assert [len(link.history) for link in models] == [2, stopped, stopped]
    assert bits(unbroken) == bits(models[1]) == bits(models[2])
    *_, last_link = broken_into_links(configuration, 0, [stopped, stopped + 5])
    assert bits(unbroken) == bits(last_link)


def test_failing_link_fails_its_successor(images: Images) -> None:
    configuration = spec(images, epochs=4)
    broken = member(1, until=2, learning_rate=1e20)
    first, other_member, last = outcomes(configuration, [broken, member(0), replace(broken, until=4, after=0)], "stack")
    assert isinstance(first, TrainingError)
    assert str(first) == str(last)
    assert isinstance(other_member, Trained)


# Failures


@pytest.mark.parametrize("way", ["loop", "stack"])
def test_infinite_loss_ends_only_its_member(images: Images, way: str) -> None:
    for regularisers in (Regularisers(), Regularisers(dropout=True, batch_norm=True)):
        configuration = spec(images, regularisers, precision="float64")
        members = [member(0), member(1, learning_rate=1e200), member(2)]
        first, second, third = outcomes(configuration, members, way)
        assert isinstance(second, TrainingError)
        assert str(second).startswith("loss is not finite at step ")
        assert str(second).endswith(" (seed 1); try a lower learning rate")
        for seed, model in ((0, first), (2, third)):
            assert_close(plain.train(configuration, member(seed), 2), model, within=1e-12)


def test_failing_step_is_counted_over_all_epochs(images: Images) -> None:
    configuration = spec(images, epochs=5, schedule=((2, 1e25),))
    (outcome,) = outcomes(configuration, [member(6)])
    assert str(outcome) == "loss is not finite at step 24 (seed 6); try a lower learning rate"


def test_unavailable_strategy_names_available_ones(images: Images) -> None:
    (outcome,) = outcomes(spec(images), [member(0)], "graph")
    assert str(outcome) == "way is graph; for mlp1 on cpu it must be auto or one of loop, stack"


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        (Member(0, np.arange(0)), "member 0 has no rows to train on"),
        (Member(0, np.arange(ROWS + 1)), f"member 0 trains on rows 0 to {ROWS} of {ROWS}"),
        (member(0, after=3), "member 0 comes after member 3; there are 1"),
    ],
)
def test_invalid_member_is_refused(images: Images, invalid: Member, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_many(spec(images), [invalid], CPU)


def test_no_members_give_nothing(images: Images) -> None:
    assert list(train_many(spec(images), [], CPU)) == []


# The rows of a member


def test_seeds_differ(images: Images) -> None:
    one, second = succeeded(spec(images, epochs=1), [member(0), member(1)])
    assert bits(one) != bits(second)


def test_replaced_row_trains_as_part_of_data(images: Images) -> None:
    letter = np.random.default_rng(9).integers(0, 256, (SIDE, SIDE, 1), dtype=np.uint8)
    changed = images.train_images.copy()
    changed[41] = letter
    changed_images = Images(changed, images.train_labels, images.test_images, images.test_labels, CLASSES)
    (replaced,) = succeeded(spec(images), [member(0, {41: letter})])
    (expected,) = succeeded(spec(changed_images), [member(0)])
    assert bits(expected) == bits(replaced)


def test_member_sees_only_its_own_rows(images: Images) -> None:
    fewer = Images(images.train_images[::2], images.train_labels[::2], images.test_images, images.test_labels, CLASSES)
    (model,) = succeeded(spec(images), [Member(4, np.arange(0, ROWS, 2))])
    (all_of_fewer,) = succeeded(spec(fewer), [Member(4, np.arange(165))])
    assert bits(all_of_fewer) == bits(model)


# Watching


@pytest.mark.parametrize("together", [1, 2])
def test_watch_receives_every_model_after_every_epoch(images: Images, together: int) -> None:
    weights_by_key: dict[tuple[int, int], np.ndarray] = {}

    def watch(evaluations: Sequence[tuple[int, int]], tensors: dict[str, torch.Tensor]) -> None:
        for index, key in enumerate(evaluations):
            assert key not in weights_by_key
            weights_by_key[key] = tensors["dense4.weight"][index].numpy().copy()

    members = [member(0), member(1, until=1), member(2)]
    configuration = replace(spec(images, epochs=3), watch=watch)
    succeeded(configuration, members, "stack", together)
    assert set(weights_by_key) == {(0, 1), (0, 2), (0, 3), (1, 1), (2, 1), (2, 2), (2, 3)}
    expected = plain.train(configuration, members[2], 3).weights
    for epoch in (1, 2, 3):
        np.testing.assert_allclose(expected[epoch]["dense4.weight"], weights_by_key[2, epoch], atol=1e-5)


# Records


def test_results_record_how_they_were_computed(images: Images) -> None:
    with use_context(ComputeContext(way="stack", members=2)) as notes:
        for _ in train_many(spec(images), [member(0), member(1), member(2)], CPU):
            assert notes["way"] == "stack"
            assert notes["stack"] == 2
            assert notes["steps_per_second"] > 0
            assert notes["bytes_per_member"] > 4 * 5 * 190_000
    with use_context(ComputeContext()) as notes:
        assert isinstance(next(train_many(spec(images), [member(0)], CPU))[1], Trained)
        assert notes["way"] == "loop"
        assert notes["stack"] == 1


OUT_OF_MEMORY = """
import resource, sys
import numpy as np, torch
from tasks.datasets.images import Images
from tasks.worker.compute_context import ComputeContext, use_context
from tasks.models.networks import Architecture
from tasks.training import memory
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.density_objective import Elbo
from tasks.training.trainer import train_many
from tasks.training.members import Member, Spec
from tasks.training.recipe import Recipe

torch.set_num_threads(1)
stream = np.random.default_rng(0)
noise = lambda n: (stream.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8), stream.integers(0, 10, n))
images = Images(*noise(48), *noise(16), 10)
spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 10)), Recipe(1, 32, 3e-4), images)
members = [Member(seed, np.arange(48)) for seed in range(int(sys.argv[2]))]
alone = [dict(train_many(spec, [member]))[0] for member in members]
memory.free = lambda device: 2**60  # pretend that memory is plentiful
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
each = 85 * 2**20  # bytes that a model takes in a stack of three or six
resource.setrlimit(resource.RLIMIT_AS, (taken + int(float(sys.argv[1]) * each), -1))
halved, give_back = [], memory.free_cached_memory
memory.free_cached_memory = lambda device: (halved.append(1), give_back(device))
for attempt in range(2 if float(sys.argv[1]) else 1):
    with use_context(ComputeContext(way="stack")) as notes:
        found, sizes = {}, []
        halved.clear()
        for index, outcome in train_many(spec, members):
            found[index] = outcome
            sizes.append(notes.get("stack"))
    same = [
        not isinstance(one, Exception)
        and all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)
        for one, other in ((found[index], alone[index]) for index in range(len(members)))
    ]
    errors = {str(outcome) for outcome in found.values() if isinstance(outcome, Exception)}
    print(len(halved), all(same), max(size or 0 for size in sizes), errors)
    del found, outcome
"""


def out_of_memory(models: float, members: int) -> list[str]:
    command = [sys.executable, "-c", OUT_OF_MEMORY, str(models), str(members)]
    # Each tensor has its own mapping, unmapped when it is freed: earlier trainings leave no spare memory.
    mapped = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=mapped)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_memory_error_halves_stack_and_is_remembered() -> None:
    assert out_of_memory(models=4.5, members=6) == ["1 True 3 set()", "0 True 3 set()"]


@pytest.mark.slow
def test_model_too_large_gives_one_clear_error() -> None:
    (first,) = out_of_memory(models=0, members=1)
    assert first.startswith("1 False 0 {'one mlp1 with a batch of 32 does not fit into the ")
    assert first.endswith(" GB that are free on cpu; try a smaller batch'}")


def test_epoch_numbers_are_python_floats(images: Images) -> None:
    (model,) = succeeded(spec(images), [member(0)])
    assert {type(value) for value in vars(model.history[0]).values()} == {int, float}
    assert isinstance(model.history[0], Epoch)
