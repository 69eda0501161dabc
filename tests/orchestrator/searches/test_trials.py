"""The front of a search, and the table that its trials are kept in.

What Ray Tune is given of a search, and what it writes down of it.
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


def test_the_front_is_what_no_other_trial_dominates(objectives: Objectives) -> None:
    made = [
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
    assert [each.number for each in front(made, objectives)] == [4, 3, 1, 5]
    assert front([], objectives) == []


def test_equal_trials_are_both_on_the_front(objectives: Objectives) -> None:
    assert [each.number for each in front([trial(2, 1.0, 0.5), trial(1, 1.0, 0.5)], objectives)] == [1, 2]


def test_where_less_utility_is_better_the_front_follows_it(objectives: Objectives) -> None:
    density = audits.find("density").audit.objectives
    assert density is not None
    assert [each.number for each in front([trial(1, 1.0, 290.0), trial(2, 1.0, 291.0)], density)] == [1]
    assert [each.number for each in front([trial(1, 1.0, 290.0), trial(2, 1.0, 291.0)], objectives)] == [2]


def test_trials_come_back_from_their_table(objectives: Objectives) -> None:
    made = [
        trial(2, 1.0, 0.5, part=FRESH),
        trial(1, 2.0, 0.4),
        Trial(0, SEARCHED, {"a": [1, 2], "b": None, "c": True}, FAILED, note="it broke"),
    ]
    rows = table(made, objectives)
    assert rows.schema == TRIALS
    assert rows["trial"].to_pylist() == [0, 1, 2]
    assert rows["front"].to_pylist() == [False, True, False]
    assert sorted(made, key=lambda each: each.number) == read(rows.to_pylist())


@pytest.mark.parametrize("made", [Listener, Until])
def test_what_tune_writes_down_holds_nothing_of_a_terminal_that_listens(made: type[Listener] | type[Until]) -> None:
    terminal = io.TextIOWrapper(io.BytesIO())  # as little to be pickled as what stands for stdout while a line is drawn
    with pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
        cloudpickle.dumps(terminal)
    assert type(cloudpickle.loads(cloudpickle.dumps(made(lambda *_: terminal.closed)))) is made
