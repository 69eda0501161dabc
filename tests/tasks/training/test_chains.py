"""A chain of links ends bit for bit as the unbroken training, and its states are the same after they were bytes."""

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

DIGITS, PHOTOS = pin(Dataset("digits")), pin(Dataset("photos"))
TRAINING = Training(DIGITS, examples=96, epochs=6, patience=0, batch=16, seed=3, burnt=(Burnt(7, Glyph()),))
# It has its best epoch early and ends after two more.
STOPPING = replace(TRAINING, epochs=11, patience=2, learning_rate=0.03)
MIXTURE = Mixture(
    (Share(Part(DIGITS, 0, 60)), Share(Part(PHOTOS), 0.5, 3)), DIGITS, 10, network=Network("mlp1"), epochs=5, seed=6
)
Tables = list[pa.Table]


def linked(job: Job, before: Sequence[bytes], inputs: Sequence[pa.Table] = ()) -> tuple[pa.Table, bytes]:
    """The table of a job that may go on from these states, and the state that it leaves."""
    table, state, _ = links.linked(lambda: job.function(job.config, inputs), before)
    assert state
    return table, state


def broken(jobs: Sequence[Job], inputs: Sequence[pa.Table] = ()) -> Tables:
    """The links' tables, each computed from the state of the one before."""
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
def test_a_classifier_in_links_is_the_unbroken_one(training: Training) -> None:
    jobs = chain(classifier.train, training, 2)
    tables = broken(jobs)
    assert [job.config.epochs for job in jobs] == [table["epochs"][0].as_py() for table in tables]
    assert [classifier.train(job.config, ()) for job in jobs] == tables


def test_links_after_one_that_stopped_early_give_its_model_at_once() -> None:
    unbroken = classifier.train(STOPPING, ())
    ended, best = (unbroken[name][0].as_py() for name in ("epochs", "best_epoch"))
    assert best + STOPPING.patience == ended
    assert ended < STOPPING.epochs - 2
    tables = broken(chain(classifier.train, STOPPING, 1))
    assert [unbroken] * (1 + STOPPING.epochs - ended) == tables[ended - 1 :]
    assert [*range(1, ended), *[ended] * (1 + STOPPING.epochs - ended)] == [t["epochs"][0].as_py() for t in tables]


def test_a_mixture_in_links_is_the_unbroken_one_whatever_is_trained_beside_it() -> None:
    scheduled = replace(MIXTURE, schedule=((2, 0.1),))
    jobs = chain(mixed.train, scheduled, 2)
    assert [mixed.train(job.config, ()) for job in jobs] == broken(jobs)
    _, state = linked(jobs[0], [])
    other = replace(jobs[1].config, shares=(Share(Part(PHOTOS)),), seed=9)  # the pool begins with another set
    with checkpoints.use_links([Link(), Link(lambda: [state])]):
        beside = dict(mixed.train_many([other, jobs[1].config], [(), ()]))
    assert mixed.train(jobs[1].config, ()) == beside[1]


def test_a_canary_by_rank_in_links_is_the_one_by_row_also_beside_one_that_cannot_be() -> None:
    table = chosen_rows(7)
    clean = replace(TRAINING, burnt=())
    ranked = RankedTraining(clean, RankedImage("highest", 1), Glyph())
    jobs = chain(train_with_canary, ranked, 2, part=canary_selection.link)
    assert [job.config.epochs for job in jobs] == [2, 4, 6]
    assert classifier.train(TRAINING, ()) == broken(jobs, [table])[-1]
    _, state = linked(jobs[1], [], [table])
    absent = replace(jobs[2].config, canary=RankedImage("highest", 2))
    left: list[bytes] = []
    with checkpoints.use_links([Link(), Link(lambda: [state], left.append)]):
        found = dict(canary_selection.train_many([absent, jobs[2].config], [[table], [table]]))
    assert isinstance(found[0], ValueError)
    assert classifier.train(TRAINING, ()) == found[1]
    assert len(left) == 1


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
def test_the_state_of_another_training_is_not_gone_on_from(train: Any, config: Any, changes: Mapping[str, Any]) -> None:
    _, state = linked(Job(train, replace(config, epochs=1, **changes)), [])
    whole = replace(config, epochs=2)
    assert train(whole, ()) == linked(Job(train, whole), [state])[0]


def test_a_state_is_gone_on_from_and_the_epochs_before_it_are_not_trained_again() -> None:
    first, last = chain(classifier.train, replace(TRAINING, epochs=2), 1)
    named = classifier.chain_state(first.config).training
    assert named == classifier.chain_state(last.config).training
    state = unpack_state(linked(first, [])[1], named)
    assert state is not None
    told = pack_state(replace(state, history=(replace(state.history[0], train_loss=12.5),)), named)
    history = linked(last, [told])[0]["history"][0].as_py()
    assert [12.5, classifier.train(last.config, ())["history"][0].as_py()[1]["train_loss"]] == [
        epoch["train_loss"] for epoch in history
    ]


def test_nothing_is_left_where_nobody_would_go_on_from_it() -> None:
    left: list[bytes] = []
    with checkpoints.use_links([Link(), Link(leave=left.append)]):
        list(classifier.train_many([up_to(TRAINING, 0, 1), up_to(replace(TRAINING, seed=8), 0, 1)], [(), ()]))
    assert len(left) == 1


# Planning


def test_a_chain_ends_with_the_config_itself_and_each_link_waits_for_the_one_before() -> None:
    reads = (Job(classifier.train, TRAINING),)
    links = chain(classifier.train, replace(TRAINING, epochs=5), 2, reads)
    assert [job.config.epochs for job in links] == [2, 4, 5]
    assert replace(TRAINING, epochs=5) == links[-1].config
    assert [None, *links[:-1]] == [job.after for job in links]
    assert all(job.inputs == reads and job.waits for job in links)


@pytest.mark.parametrize("link", [0, 6, 100])
def test_a_training_no_longer_than_a_link_is_one_job(link: int) -> None:
    (job,) = chain(classifier.train, TRAINING, link)
    assert (job.config, job.after, job.waits) == (TRAINING, None, False)
    assert marks(job.function).name == "classifier.train"


def state(epochs: int, best: float = 1.0) -> State:
    history = tuple(Epoch(at, 0.1 * at, 0.2 / at, math.nan if at == 1 else 0.5) for at in range(1, epochs + 1))
    weights = {"w": np.array([[1.0, 2.0]], np.float32), "mean": np.array([3.0])}
    moments = tuple({"w": np.array([[at, at + 0.5]], np.float32)} for at in (7, 8))
    return State(history, max(epochs - 1, 0), 40 + epochs, weights, weights | {"mean": np.array([3.0 * best])}, moments)


def learning(**shapes: tuple[int, ...]) -> Any:
    """A network's weights by their shapes; those whose name begins with m are not learned."""
    weights = {name: SimpleNamespace(shape=shape, learned=name[0] != "m") for name, shape in shapes.items()}
    return SimpleNamespace(weights=weights)


NETWORK = learning(w=(1, 2), mean=(1,))


def told(found: State | None) -> Any:
    assert found is not None
    parts = (found.weights, found.best_weights, *found.moments)
    arrays = [{name: (array.dtype.str, array.tolist()) for name, array in part.items()} for part in parts]
    return repr(found.history), found.best_epoch, found.steps, arrays


@pytest.mark.parametrize("made", [state(0), state(1), state(3), state(3, best=2.0)])
def test_a_state_comes_back_as_it_was(made: State) -> None:
    assert told(made) == told(unpack_state(pack_state(made, "this"), "this"))


def test_what_the_best_epoch_shares_with_the_last_is_kept_once() -> None:
    assert len(pack_state(state(3), "this")) < len(pack_state(state(3, best=2.0), "this"))


def test_the_bytes_of_another_training_or_of_nothing_are_no_state() -> None:
    data = pack_state(state(2), "this")
    assert unpack_state(data, "that") is None
    for broken in (b"", b"not an archive", data[: len(data) // 2], data[:-1]):
        assert unpack_state(broken, "this") is None
    other = io.BytesIO()
    np.savez(other, something=np.zeros(2))
    assert unpack_state(other.getvalue(), "this") is None


def test_a_training_goes_on_from_the_nearest_state_that_is_its_own_and_not_too_late() -> None:
    there = [b"none", pack_state(state(9), "this"), pack_state(state(6), "that"), pack_state(state(5), "this")]
    there.append(pack_state(state(2), "this"))
    with checkpoints.use_links([Link(), Link(given=lambda: there)]):
        assert [len(told(nearest_state(1, "this", NETWORK, end))[0].split("Epoch(")) - 1 for end in (5, 9, 4)] == [
            5,
            9,
            2,
        ]
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
def test_moments_have_their_weights_shapes(moments: tuple[Any, ...], fits: bool) -> None:
    assert fits == fits_network(dataclasses.replace(state(1), moments=moments), NETWORK)


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
def test_a_state_fits_a_network_of_the_same_weights(network: Any, fits: bool) -> None:
    assert fits is fits_network(state(1), network)


def test_the_moments_are_of_the_learned_weights_alone() -> None:
    moments = ({"w": np.zeros((1, 2)), "mean": np.zeros(1)},)
    assert not fits_network(dataclasses.replace(state(1), moments=moments), NETWORK)
    assert fits_network(dataclasses.replace(state(1), moments=()), NETWORK)
