"""Recording a step leaves no trace: rehearsals restore the state. Tested without a GPU by another recorder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.training import stack
from tasks.training.device_data import resident
from tasks.training.members import Member
from tasks.training.stack import REHEARSALS
from tasks.training.step import Step
from tasks.training.strategies import Strategy, Workload
from tests.tasks.training.self_supervised import Teacher
from tests.tasks.training.test_trainer import classifier, generator, mnist


class Rehearsed:
    """Calls functions in the order of `Graphs`, on devices without recording."""

    def __init__(self, device: torch.device) -> None:
        self.known: set[str] = set()

    def run(self, name: str, function: Callable[[], None], changed: Sequence[Tensor]) -> None:
        if name not in self.known:
            before = [tensor.clone() for tensor in changed]
            for _ in range(REHEARSALS):
                function()
                with torch.no_grad():
                    for tensor, was in zip(changed, before, strict=True):
                        tensor.copy_(was)
            self.known.add(name)
        function()


KINDS = {
    "classifier": lambda: classifier("mlp1", 8, dropout=True, batch_norm=True),
    "generator": lambda: generator(mnist()),
    "teacher": lambda: replace(classifier("mlp1", 8), learning=Teacher(64, 4.0)),
}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *(
            (kind, {"optimiser": optimiser})
            for kind in ("classifier", "generator")
            for optimiser in ("adam", "rmsprop")
        ),
        ("teacher", {"schedule": ((1, 0.5),)}),
        ("teacher", {"optimiser": "rmsprop", "accumulate": 2}),
        ("classifier", {"accumulate": 4}),
    ],
)
def test_rehearsal_leaves_no_trace(kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = KINDS[kind]()
    configuration = replace(configuration, recipe=replace(configuration.recipe, patience=5, **settings))
    members = [Member(1, np.arange(22)), Member(2, np.arange(16))]
    workload = Workload(configuration, resident(configuration.images, torch.device("cpu")), members, [{}, {}])
    monkeypatch.setattr(stack, "Graphs", Rehearsed)
    # No manual gradients: a GPU uses autograd.
    monkeypatch.setattr(Step, "_explicit_step", lambda *_: None)
    ended = []
    for captured in (False, True):
        (models,) = workload.stacks(Strategy("stack", places=2, captured=captured))
        for slot, member in enumerate(members):
            models.enter(slot, slot, member)
        for _ in range(3):
            models.launch()
            epochs = [outcome for _, outcome in models.land()]
        ended.append((epochs, *(memory.clone() for memory in models._memory())))
    (expected, *expected_state), (captured_epochs, *state) = ended
    np.testing.assert_equal(*([vars(epoch) for epoch in epochs] for epochs in (expected, captured_epochs)))
    assert all(
        torch.equal(expected_tensor, actual) for expected_tensor, actual in zip(expected_state, state, strict=True)
    )
