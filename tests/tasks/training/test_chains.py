"""A chain of links ends bit for bit as the unbroken training, whatever interrupted it on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks import checkpoints
from tasks.audits.unique_feature import canary_selection
from tasks.audits.unique_feature.canary_selection import RankedImage, RankedTraining, train_with_canary
from tasks.checkpoints import Link
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph
from tasks.datasets.mixtures import Part, Share
from tasks.job import Job, marks
from tasks.models.catalog import Network
from tasks.training import classifier, mixed
from tasks.training.chains import chain, up_to
from tasks.training.classifier import Burnt, Training
from tasks.training.mixed import Mixture
from tasks.training.states import pack, unpack
from tests.tasks.audits.unique_feature.made_up import chosen

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
    left: list[bytes] = []
    with checkpoints.use_links([Link(lambda: before, left.append)]):
        table = job.function(job.config, inputs)
    (state,) = left
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
    table = chosen(7)
    clean = replace(TRAINING, burnt=())
    ranked = RankedTraining(clean, RankedImage("highest", 1), Glyph())
    jobs = chain(train_with_canary, ranked, 2, part=canary_selection.link)
    assert [2, 4, 6] == [job.config.epochs for job in jobs]
    assert classifier.train(TRAINING, ()) == broken(jobs, [table])[-1]
    _, state = linked(jobs[1], [], [table])
    absent = replace(jobs[2].config, canary=RankedImage("highest", 2))
    left: list[bytes] = []
    with checkpoints.use_links([Link(), Link(lambda: [state], left.append)]):
        found = dict(canary_selection.train_many([absent, jobs[2].config], [[table], [table]]))
    assert isinstance(found[0], ValueError)
    assert classifier.train(TRAINING, ()) == found[1]
    assert 1 == len(left)


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
    state = unpack(linked(first, [])[1], named)
    assert state is not None
    told = pack(replace(state, history=(replace(state.history[0], train_loss=12.5),)), named)
    history = linked(last, [told])[0]["history"][0].as_py()
    assert [12.5, classifier.train(last.config, ())["history"][0].as_py()[1]["train_loss"]] == [
        epoch["train_loss"] for epoch in history
    ]


def test_nothing_is_left_where_nobody_would_go_on_from_it() -> None:
    left: list[bytes] = []
    with checkpoints.use_links([Link(), Link(leave=left.append)]):
        list(classifier.train_many([up_to(TRAINING, 0, 1), up_to(replace(TRAINING, seed=8), 0, 1)], [(), ()]))
    assert 1 == len(left)


# Planning


def test_a_chain_ends_with_the_config_itself_and_each_link_waits_for_the_one_before() -> None:
    reads = (Job(classifier.train, TRAINING),)
    links = chain(classifier.train, replace(TRAINING, epochs=5), 2, reads)
    assert [2, 4, 5] == [job.config.epochs for job in links]
    assert replace(TRAINING, epochs=5) == links[-1].config
    assert [None, *links[:-1]] == [job.after for job in links]
    assert all(job.inputs == reads and job.waits for job in links)


@pytest.mark.parametrize("link", [0, 6, 100])
def test_a_training_no_longer_than_a_link_is_one_job(link: int) -> None:
    (job,) = chain(classifier.train, TRAINING, link)
    assert (TRAINING, None, False) == (job.config, job.after, job.waits)
    assert "classifier.train" == marks(job.function).name
