"""A chain of links equals the unbroken training bit for bit, and its states survive packing."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.pairs import canary_selection
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage, RankedTraining, train_with_canary
from tasks.contract.job import Job, marks
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph
from tasks.datasets.mixtures import Part, Share
from tasks.models.catalog import Network
from tasks.training import classifier, mixed
from tasks.training.chains import chain, fits_network, nearest_state, pack_state, unpack_state, up_to
from tasks.training.classifier import Burnt, Training
from tasks.training.members import Epoch, State
from tasks.training.mixed import Mixture
from tasks.worker import checkpoints
from tasks.worker.checkpoints import Link
from tests.support import links
from tests.tasks.audits.unique_feature.made_up import chosen_rows

DIGITS = pin(Dataset("digits"))
PHOTOS = pin(Dataset("photos"))
TRAINING = Training(DIGITS, examples=96, epochs=6, patience=0, batch=16, seed=3, burnt=(Burnt(7, Glyph()),))
# Its best epoch comes early, and it ends two epochs later.
STOPPING = replace(TRAINING, epochs=11, patience=2, learning_rate=0.03)
MIXTURE = Mixture(
    (Share(Part(DIGITS, 0, 60)), Share(Part(PHOTOS), 0.5, 3)), DIGITS, 10, network=Network("mlp1"), epochs=5, seed=6
)
Tables = list[pa.Table]


def linked(job: Job, before: Sequence[bytes], inputs: Sequence[pa.Table] = ()) -> tuple[pa.Table, bytes]:
    """The table of a job that may continue from these states, and the state that it saves."""
    table, state, _ = links.linked(lambda: job.function(job.config, inputs), before)
    assert state
    return table, state


def broken(jobs: Sequence[Job], inputs: Sequence[pa.Table] = ()) -> Tables:
    """The links' tables, each computed from the state of the previous link."""
    tables: Tables = []
    states: list[bytes] = []
    for job in jobs:
        table, state = linked(job, states[-1:], inputs)
        tables.append(table)
        states.append(state)
    return tables


@pytest.mark.parametrize(
    "training",
    [
        TRAINING,
        replace(TRAINING, schedule=((1, 0.5), (4, 0.1)), optimiser="rmsprop"),
        replace(TRAINING, dropout=True, batch_norm=True, augmentation=True),
        replace(STOPPING, patience=20),
    ],
    ids=["plain", "schedule", "regularised", "patience"],
)
def test_links_of_classifier_equal_unbroken_training(training: Training) -> None:
    jobs = chain(classifier.train, training, 2)
    tables = broken(jobs)
    assert [job.config.epochs for job in jobs] == [table["epochs"][0].as_py() for table in tables]
    assert [classifier.train(job.config, ()) for job in jobs] == tables


def test_links_after_early_stop_return_its_model() -> None:
    unbroken = classifier.train(STOPPING, ())
    ended = unbroken["epochs"][0].as_py()
    best = unbroken["best_epoch"][0].as_py()
    assert best + STOPPING.patience == ended
    assert ended < STOPPING.epochs - 2
    tables = broken(chain(classifier.train, STOPPING, 1))
    assert [unbroken] * (1 + STOPPING.epochs - ended) == tables[ended - 1 :]
    assert [*range(1, ended), *[ended] * (1 + STOPPING.epochs - ended)] == [t["epochs"][0].as_py() for t in tables]


def test_links_of_mixture_equal_unbroken_training() -> None:
    scheduled = replace(MIXTURE, schedule=((2, 0.1),))
    jobs = chain(mixed.train, scheduled, 2)
    assert [mixed.train(job.config, ()) for job in jobs] == broken(jobs)
    _, state = linked(jobs[0], [])
    other_mixture = replace(jobs[1].config, shares=(Share(Part(PHOTOS)),), seed=9)  # the pool starts with another set
    with checkpoints.use_links([Link(), Link(lambda: [state])]):
        stacked_tables = dict(mixed.train_many([other_mixture, jobs[1].config], [(), ()]))
    assert mixed.train(jobs[1].config, ()) == stacked_tables[1]


def test_ranked_canary_equals_canary_by_row_in_links() -> None:
    table = chosen_rows(7)
    clean = replace(TRAINING, burnt=())
    ranked = RankedTraining(clean, RankedImage("highest", 1), Glyph())
    jobs = chain(train_with_canary, ranked, 2, part=canary_selection.link)
    assert [job.config.epochs for job in jobs] == [2, 4, 6]
    assert classifier.train(TRAINING, ()) == broken(jobs, [table])[-1]
    _, state = linked(jobs[1], [], [table])
    absent = replace(jobs[2].config, canary=RankedImage("highest", 2))
    saved_states: list[bytes] = []
    with checkpoints.use_links([Link(), Link(lambda: [state], saved_states.append)]):
        tables = dict(canary_selection.train_many([absent, jobs[2].config], [[table], [table]]))
    assert isinstance(tables[0], ValueError)
    assert classifier.train(TRAINING, ()) == tables[1]
    assert len(saved_states) == 1


@pytest.mark.parametrize(
    ("train", "config", "changes"),
    [
        (classifier.train, TRAINING, {"seed": 4}),
        (classifier.train, TRAINING, {"burnt": ()}),
        (classifier.train, TRAINING, {"examples": 95}),
        (classifier.train, TRAINING, {"schedule": ((1, 0.5),)}),
        (classifier.train, TRAINING, {"learning_rate": 1e-3}),
        (mixed.train, MIXTURE, {"shares": (Share(Part(DIGITS, 0, 60)),)}),
        (mixed.train, MIXTURE, {"seed": 7}),
    ],
)
def test_state_of_another_training_is_ignored(train: Any, config: Any, changes: Mapping[str, Any]) -> None:
    _, state = linked(Job(train, replace(config, epochs=1, **changes)), [])
    full_config = replace(config, epochs=2)
    assert train(full_config, ()) == linked(Job(train, full_config), [state])[0]


def test_continued_training_skips_earlier_epochs() -> None:
    first, last = chain(classifier.train, replace(TRAINING, epochs=2), 1)
    training_key = classifier.chain_state(first.config).training
    assert training_key == classifier.chain_state(last.config).training
    state = unpack_state(linked(first, [])[1], training_key)
    assert state is not None
    edited_state = pack_state(replace(state, history=(replace(state.history[0], train_loss=12.5),)), training_key)
    history = linked(last, [edited_state])[0]["history"][0].as_py()
    assert [epoch["train_loss"] for epoch in history] == [
        12.5,
        classifier.train(last.config, ())["history"][0].as_py()[1]["train_loss"],
    ]


def test_state_is_saved_only_if_requested() -> None:
    saved_states: list[bytes] = []
    with checkpoints.use_links([Link(), Link(leave=saved_states.append)]):
        list(classifier.train_many([up_to(TRAINING, 0, 1), up_to(replace(TRAINING, seed=8), 0, 1)], [(), ()]))
    assert len(saved_states) == 1


# Planning


def test_last_link_is_config_and_links_wait() -> None:
    reads = (Job(classifier.train, TRAINING),)
    links = chain(classifier.train, replace(TRAINING, epochs=5), 2, reads)
    assert [job.config.epochs for job in links] == [2, 4, 5]
    assert replace(TRAINING, epochs=5) == links[-1].config
    assert [job.after for job in links] == [None, *links[:-1]]
    assert all(job.inputs == reads and job.waits for job in links)


@pytest.mark.parametrize("link", [0, 6, 100])
def test_short_training_is_one_job(link: int) -> None:
    (job,) = chain(classifier.train, TRAINING, link)
    assert (job.config, job.after, job.waits) == (TRAINING, None, False)
    assert marks(job.function).name == "classifier.train"


def make_state(epochs: int, best: float = 1.0) -> State:
    history = tuple(
        Epoch(number, 0.1 * number, 0.2 / number, math.nan if number == 1 else 0.5) for number in range(1, epochs + 1)
    )
    weights = {"w": np.array([[1.0, 2.0]], np.float32), "mean": np.array([3.0])}
    moments = tuple({"w": np.array([[number, number + 0.5]], np.float32)} for number in (7, 8))
    return State(history, max(epochs - 1, 0), 40 + epochs, weights, weights | {"mean": np.array([3.0 * best])}, moments)


def learning(**shapes: tuple[int, ...]) -> Any:
    """A network's weights by their shapes; weights whose name begins with m are not learned."""
    weights = {}
    for name, shape in shapes.items():
        weights[name] = SimpleNamespace(shape=shape, learned=name[0] != "m")
    return SimpleNamespace(weights=weights)


NETWORK = learning(w=(1, 2), mean=(1,))


def describe(state: State | None) -> Any:
    assert state is not None
    parts = (state.weights, state.best_weights, *state.moments)
    arrays = []
    for part in parts:
        arrays.append({name: (array.dtype.str, array.tolist()) for name, array in part.items()})
    return repr(state.history), state.best_epoch, state.steps, arrays


@pytest.mark.parametrize("original", [make_state(0), make_state(1), make_state(3), make_state(3, best=2.0)])
def test_state_survives_packing(original: State) -> None:
    assert describe(original) == describe(unpack_state(pack_state(original, "this"), "this"))


def test_weights_shared_with_best_epoch_are_stored_once() -> None:
    assert len(pack_state(make_state(3), "this")) < len(pack_state(make_state(3, best=2.0), "this"))


def test_bytes_of_another_training_are_no_state() -> None:
    data = pack_state(make_state(2), "this")
    assert unpack_state(data, "that") is None
    for broken in (b"", b"not an archive", data[: len(data) // 2], data[:-1]):
        assert unpack_state(broken, "this") is None
    other_archive = io.BytesIO()
    np.savez(other_archive, something=np.zeros(2))
    assert unpack_state(other_archive.getvalue(), "this") is None


def test_nearest_usable_state_is_taken() -> None:
    states = [
        b"none",
        pack_state(make_state(9), "this"),
        pack_state(make_state(6), "that"),
        pack_state(make_state(5), "this"),
    ]
    states.append(pack_state(make_state(2), "this"))
    with checkpoints.use_links([Link(), Link(earlier_states=lambda: states)]):
        assert len(describe(nearest_state(1, "this", NETWORK, 5))[0].split("Epoch(")) - 1 == 5
        assert len(describe(nearest_state(1, "this", NETWORK, 9))[0].split("Epoch(")) - 1 == 9
        assert len(describe(nearest_state(1, "this", NETWORK, 4))[0].split("Epoch(")) - 1 == 2
        assert nearest_state(1, "this", NETWORK, 1) is None
        assert nearest_state(0, "this", NETWORK, 9) is None
        assert nearest_state(1, "this", learning(w=(2, 1), mean=(1,)), 9) is None


@pytest.mark.parametrize(
    ("moments", "fits"),
    [
        ((), True),
        (({"w": np.zeros((1, 2))},), True),
        (({"w": np.zeros((1, 1))}, {"w": np.zeros((1, 2))}), False),
        (({"w": np.zeros(2)},), False),
        (({"w": np.zeros((2, 2))},), False),
        (({"mean": np.zeros(1)},), False),  # not learned
    ],
)
def test_moments_have_shapes_of_their_weights(moments: tuple[Any, ...], fits: bool) -> None:
    assert fits == fits_network(dataclasses.replace(make_state(1), moments=moments), NETWORK)


@pytest.mark.parametrize(
    ("network", "fits"),
    [
        (NETWORK, True),
        (learning(w=(1, 2)), False),
        (learning(w=(1, 2), mean=(2,)), False),
        (learning(w=(1, 2), mean=(1,), more=(1,)), False),
        (learning(w=(1, 2), v=(1,)), False),
    ],
)
def test_state_fits_network_of_same_weights(network: Any, fits: bool) -> None:
    assert fits is fits_network(make_state(1), network)


def test_moments_belong_to_learned_weights_only() -> None:
    moments = ({"w": np.zeros((1, 2)), "mean": np.zeros(1)},)
    assert not fits_network(dataclasses.replace(make_state(1), moments=moments), NETWORK)
    assert fits_network(dataclasses.replace(make_state(1), moments=()), NETWORK)
