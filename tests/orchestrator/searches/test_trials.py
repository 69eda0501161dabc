"""The front of a search and the table of its trials.

The objects of a search that Ray Tune receives and stores.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import replace

import pytest
from ray import cloudpickle

from orchestrator.inspection.search_results import FRESH, SEARCHED
from orchestrator.searches.trials import (
    FAILED,
    FINISHED,
    STOPPED,
    TRIALS,
    Trial,
    Value,
    front,
    read,
    table,
)
from orchestrator.searches.tuning import Listener, Until
from orchestrator.spec import audits
from tasks.contract.objectives import Objectives


def trial(number: int, memory: float, skill: float, state: str = FINISHED, part: str = SEARCHED) -> Trial:
    value = Value(memory, memory - 1, memory + 1, 4, "training")
    return Trial(number, part, {"rate": 0.5}, state, f"run-{number}", 8, 1, value, replace(value, estimate=skill))


def test_front_is_every_undominated_trial(objectives: Objectives) -> None:
    trials = [
        trial(0, 5.0, 0.90),
        trial(1, 4.0, 0.90),  # dominates the start
        trial(2, 3.0, 0.80),
        trial(3, 3.0, 0.85),  # dominates 2
        trial(4, 1.0, 0.10),
        trial(5, 6.0, 0.95),
        trial(6, 0.0, 1.00, STOPPED),
        trial(7, 0.0, 1.00, part=FRESH),
        replace(trial(8, 0.0, 1.0, FAILED), memorization=None),
    ]
    assert [entry.number for entry in front(trials, objectives)] == [4, 3, 1, 5]
    assert front([], objectives) == []


def test_equal_trials_are_both_on_the_front(objectives: Objectives) -> None:
    assert [entry.number for entry in front([trial(2, 1.0, 0.5), trial(1, 1.0, 0.5)], objectives)] == [1, 2]


def test_front_follows_lower_utility(objectives: Objectives) -> None:
    density = audits.find("density").audit.objectives
    assert density is not None
    assert [entry.number for entry in front([trial(1, 1.0, 290.0), trial(2, 1.0, 291.0)], density)] == [1]
    assert [entry.number for entry in front([trial(1, 1.0, 290.0), trial(2, 1.0, 291.0)], objectives)] == [2]


def test_trials_are_read_back_from_their_table(objectives: Objectives) -> None:
    trials = [
        trial(2, 1.0, 0.5, part=FRESH),
        trial(1, 2.0, 0.4),
        Trial(0, SEARCHED, {"a": [1, 2], "b": None, "c": True}, FAILED, note="it broke"),
    ]
    rows = table(trials, objectives)
    assert rows.schema == TRIALS
    assert rows["trial"].to_pylist() == [0, 1, 2]
    assert rows["front"].to_pylist() == [False, True, False]
    assert sorted(trials, key=lambda entry: entry.number) == read(rows.to_pylist())


@pytest.mark.parametrize("listener", [Listener, Until])
def test_objects_given_to_tune_hold_no_terminal(listener: type[Listener] | type[Until]) -> None:
    terminal = io.TextIOWrapper(io.BytesIO())  # like a wrapped stdout, it cannot be pickled
    with pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
        cloudpickle.dumps(terminal)
    assert type(cloudpickle.loads(cloudpickle.dumps(listener(lambda *_: terminal.closed)))) is listener
