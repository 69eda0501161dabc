"""A density's training goes on from wherever it stopped, to the bit, and from no state that is not its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from tasks.datasets.dataset import Dataset
from tasks.training.density import fit, latest, train_many
from tasks.training.density_config import DensityTraining, Fold
from tasks.training.recipe import Privacy
from tasks.worker import checkpoints, compute_context
from tasks.worker.checkpoints import Link

WHOLE = DensityTraining(
    Dataset("digits"),
    seed=7,
    held_out=Fold(partition=1, folds=3, number=2),
    examples=40,
    epochs=5,
    recorded=(1, 2, 4, 5),
    batch=16,
    samples=4,
    drawn=2,
)


def linked(config: DensityTraining, given: Sequence[bytes] = ()) -> tuple[pa.Table, bytes, Mapping[str, object]]:
    """The table, the state at the end, and what was noted."""
    left: list[bytes] = []
    with (
        compute_context.use_context(compute_context.ComputeContext("loop")) as notes,
        checkpoints.use_links([Link(lambda: given, left.append)]),
    ):
        table = fit(config, ())
        noted = dict(notes)
    return table, left[0] if left else b"", noted


def link(epochs: int, *recorded: int, whole: DensityTraining = WHOLE) -> DensityTraining:
    return replace(whole, epochs=epochs, recorded=recorded, drawn=whole.drawn if epochs == whole.epochs else 0)


@pytest.fixture(scope="module")
def unbroken() -> pa.Table:
    with compute_context.use_context(compute_context.ComputeContext("loop")):
        return fit(WHOLE, ())


def test_a_chain_of_links_is_the_unbroken_training_to_the_bit(unbroken: pa.Table) -> None:
    first, state, noted = linked(link(2, 1, 2))
    assert "continued_from" not in noted
    second, state, noted = linked(link(3), [state])
    assert noted["continued_from"] == 2
    last, _, noted = linked(link(5, 4, 5), [state])
    assert noted["continued_from"] == 3
    by_epoch = ("log_p", "effective_samples")  # of which each link has those of its own epochs
    for name in by_epoch:
        said = [values for table in (first, second, last) for values in table[name].to_pylist() if values]
        assert [each for each in unbroken[name].to_pylist() if each] == said
    others = [name for name in unbroken.schema.names if name not in by_epoch]
    assert unbroken.select(others).equals(last.select(others))
    for table in (first, second):
        early = [name for name in others if name != "samples"]
        assert unbroken.select(early).slice(0, len(table)).equals(table.select(early))


@pytest.mark.parametrize("before", [1, 3])
def test_a_link_is_the_same_wherever_it_goes_on_from(before: int) -> None:
    _, state, _ = linked(link(before))
    alone, ended, _ = linked(link(5, 4, 5))
    continued, ended_too, noted = linked(link(5, 4, 5), [state])
    assert before == noted["continued_from"]
    assert alone.equals(continued)
    assert ended == ended_too


def test_a_state_past_an_epoch_at_which_the_model_is_asked_is_passed_over_for_an_earlier_one() -> None:
    late, early = (linked(link(epochs))[1] for epochs in (4, 3))
    config = link(5, 4, 5)
    assert latest(config) == 3
    table, _, noted = linked(config, [late, early])
    assert noted["continued_from"] == 3
    assert table.equals(fit(config, ()))


def test_a_training_that_is_asked_nothing_may_go_on_from_its_very_end() -> None:
    config = link(4)
    table, state, _ = linked(config)
    again, _, noted = linked(config, [state])
    assert (noted["continued_from"], table.equals(again)) == (4, True)


@pytest.mark.parametrize(
    "other",
    [
        replace(WHOLE, seed=8),
        replace(WHOLE, held_out=None),
        replace(WHOLE, learning_rate=2e-3),
        replace(WHOLE, batch=8),
        replace(WHOLE, examples=39),
    ],
    ids=["seed", "held out", "learning rate", "batch", "examples"],
)
def test_the_state_of_another_training_is_none(other: DensityTraining) -> None:
    _, state, _ = linked(link(2, whole=other))
    table, _, noted = linked(link(3), [state, b"", b"no archive", state[: len(state) // 2]])
    assert "continued_from" not in noted
    assert table.equals(fit(link(3), ()))


def test_the_trainings_of_a_call_go_on_from_different_epochs_as_they_would_alone() -> None:
    configs = [replace(link(4, 4), seed=seed) for seed in (1, 2, 3)]
    given = [[linked(replace(link(epochs), seed=seed))[1]] for seed, epochs in ((1, 1), (2, 3))]
    left: dict[int, bytes] = {}
    each = [
        Link(lambda: given[0]),
        Link(lambda: given[1], lambda state: left.update({1: state})),
        Link(leave=lambda state: left.update({2: state})),
    ]
    with compute_context.use_context(compute_context.ComputeContext("loop")), checkpoints.use_links(each):
        found = dict(train_many(configs, [()] * 3))
    for index, config in enumerate(configs):
        table, state, _ = linked(config)
        assert table.equals(found[index])
        assert state == left.get(index, state)
    assert {1, 2} == set(left)


@pytest.mark.slow
def test_a_private_training_is_never_broken_into_links() -> None:
    whole = replace(WHOLE, batch=40)  # whose noise is found in a tenth of the time: no row is left out by chance
    _, state, _ = linked(link(2, whole=whole))
    config = replace(link(3, whole=whole), privacy=Privacy(3.0))
    left: list[bytes] = []
    with (
        compute_context.use_context(compute_context.ComputeContext("loop")) as notes,
        checkpoints.use_links([Link(lambda: [state], left.append)]),
    ):
        fit(config, ())
        assert "continued_from" not in notes
    assert left == []
