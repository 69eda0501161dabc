"""What Ray Tune is given of a search, and what it writes down of it."""

from __future__ import annotations

import io
import pickle

import pytest
from ray import cloudpickle

from orchestrator.searches.tuning import Listener, Until


@pytest.mark.parametrize("made", [Listener, Until])
def test_what_tune_writes_down_holds_nothing_of_a_terminal_that_listens(made: type[Listener] | type[Until]) -> None:
    terminal = io.TextIOWrapper(io.BytesIO())  # as little to be pickled as what stands for stdout while a line is drawn
    with pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
        cloudpickle.dumps(terminal)
    assert type(cloudpickle.loads(cloudpickle.dumps(made(lambda *_: terminal.closed)))) is made
