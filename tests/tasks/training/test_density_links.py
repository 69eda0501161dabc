"""A density's training continues exactly from its last state, and only from its own."""

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


def linked(config: DensityTraining, states: Sequence[bytes] = ()) -> tuple[pa.Table, bytes, Mapping[str, object]]:
    """The table, the final state and the notes."""
    saved_states: list[bytes] = []
    with (
        compute_context.use_context(compute_context.ComputeContext("loop")) as notes,
        checkpoints.use_links([Link(lambda: states, saved_states.append)]),
    ):
        table = fit(config, ())
        noted = dict(notes)
    return table, saved_states[0] if saved_states else b"", noted


def link(epochs: int, *recorded: int, full_config: DensityTraining = WHOLE) -> DensityTraining:
    return replace(
        full_config, epochs=epochs, recorded=recorded, drawn=full_config.drawn if epochs == full_config.epochs else 0
    )


@pytest.fixture(scope="module")
def unbroken() -> pa.Table:
    with compute_context.use_context(compute_context.ComputeContext("loop")):
        return fit(WHOLE, ())


def test_chain_equals_unbroken_training_bit_for_bit(unbroken: pa.Table) -> None:
    first, state, noted = linked(link(2, 1, 2))
    assert "continued_from" not in noted
    second, state, noted = linked(link(3), [state])
    assert noted["continued_from"] == 2
    last, _, noted = linked(link(5, 4, 5), [state])
    assert noted["continued_from"] == 3
    by_epoch = ("log_p", "effective_samples")  # each link has only the values of its own epochs
    for name in by_epoch:
        log_p = [values for table in (first, second, last) for values in table[name].to_pylist() if values]
        assert [row_values for row_values in unbroken[name].to_pylist() if row_values] == log_p
    other_columns = [name for name in unbroken.schema.names if name not in by_epoch]
    assert unbroken.select(other_columns).equals(last.select(other_columns))
    for table in (first, second):
        early = [name for name in other_columns if name != "samples"]
        assert unbroken.select(early).slice(0, len(table)).equals(table.select(early))


@pytest.mark.parametrize("before", [1, 3])
def test_link_is_independent_of_its_start(before: int) -> None:
    _, state, _ = linked(link(before))
    alone, ended, _ = linked(link(5, 4, 5))
    continued, ended_too, noted = linked(link(5, 4, 5), [state])
    assert before == noted["continued_from"]
    assert alone.equals(continued)
    assert ended == ended_too


def test_late_state_is_skipped_for_earlier_one() -> None:
    late = linked(link(4))[1]
    early = linked(link(3))[1]
    config = link(5, 4, 5)
    assert latest(config) == 3
    table, _, noted = linked(config, [late, early])
    assert noted["continued_from"] == 3
    assert table.equals(fit(config, ()))


def test_training_without_evaluations_continues_from_its_end() -> None:
    config = link(4)
    table, state, _ = linked(config)
    repeated, _, noted = linked(config, [state])
    assert (noted["continued_from"], table.equals(repeated)) == (4, True)


@pytest.mark.parametrize(
    "other_config",
    [
        replace(WHOLE, seed=8),
        replace(WHOLE, held_out=None),
        replace(WHOLE, learning_rate=2e-3),
        replace(WHOLE, batch=8),
        replace(WHOLE, examples=39),
    ],
    ids=["seed", "held out", "learning rate", "batch", "examples"],
)
def test_state_of_another_training_is_ignored(other_config: DensityTraining) -> None:
    _, state, _ = linked(link(2, full_config=other_config))
    table, _, noted = linked(link(3), [state, b"", b"no archive", state[: len(state) // 2]])
    assert "continued_from" not in noted
    assert table.equals(fit(link(3), ()))


def test_trainings_of_call_continue_separately() -> None:
    configs = [replace(link(4, 4), seed=seed) for seed in (1, 2, 3)]
    states = []
    for seed, epochs in ((1, 1), (2, 3)):
        states.append([linked(replace(link(epochs), seed=seed))[1]])
    saved_states: dict[int, bytes] = {}
    links_of_call = [
        Link(lambda: states[0]),
        Link(lambda: states[1], lambda state: saved_states.update({1: state})),
        Link(leave=lambda state: saved_states.update({2: state})),
    ]
    with compute_context.use_context(compute_context.ComputeContext("loop")), checkpoints.use_links(links_of_call):
        tables = dict(train_many(configs, [()] * 3))
    for index, config in enumerate(configs):
        table, state, _ = linked(config)
        assert table.equals(tables[index])
        assert state == saved_states.get(index, state)
    assert set(saved_states) == {1, 2}


@pytest.mark.slow
def test_private_training_has_no_links() -> None:
    full_config = replace(WHOLE, batch=40)  # its noise takes a tenth of the time: no row is left out at random
    _, state, _ = linked(link(2, full_config=full_config))
    config = replace(link(3, full_config=full_config), privacy=Privacy(3.0))
    saved_states: list[bytes] = []
    with (
        compute_context.use_context(compute_context.ComputeContext("loop")) as notes,
        checkpoints.use_links([Link(lambda: [state], saved_states.append)]),
    ):
        fit(config, ())
        assert "continued_from" not in notes
    assert saved_states == []
