"""Chains: a long training as links, each a job "this training, up to epoch e" that continues where another ended.

A link is the same config with fewer `epochs`. Where it continues from makes no difference to its result: on a CPU a
chain ends bit for bit as the unbroken training does, also where training stopped early within an earlier link.

Planning a chain imports no torch; training one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tasks import checkpoints
from tasks.job import Function, Job

if TYPE_CHECKING:
    from tasks.training.members import Member, Spec
    from tasks.training.trainer import Outcome

Part = Callable[[Any, int, int], Any]


# Planning


def up_to(config: Any, before: int, end: int) -> Any:  # noqa: ARG001 - a link is asked nothing on its way
    """The training up to epoch `end`."""
    return replace(config, epochs=end)


def recording_up_to(config: Any, before: int, end: int) -> Any:
    """The training from epoch `before` up to epoch `end`, which records after those of its `asked` epochs alone."""
    first = -1 if before == 0 else before
    recorded = tuple(epoch for epoch in config.asked if first < epoch <= end)
    return replace(config, epochs=end, recorded=recorded or None)


def check_recorded(recorded: tuple[int, ...] | None, epochs: int) -> None:
    """ValueError unless these are epochs of a training of so many, 0 for before it, ascending."""
    kept = list(recorded or ())
    if kept != sorted(set(kept)) or any(not 0 <= epoch <= epochs for epoch in kept):
        raise ValueError(f"recorded is {recorded}; it must be epochs from 0 to {epochs}, ascending")


def chain(
    function: Function, config: Any, link: int, inputs: tuple[Job, ...] = (), part: Part = up_to
) -> tuple[Job, ...]:
    """The training as jobs of `link` epochs each (0: one job), first to last, all of which are computed.

    `part(config, before, end)` is the config of the link from epoch `before` to epoch `end`.
    """
    if not 0 < link < config.epochs:
        return (Job(function, config, inputs),)
    links: list[Job] = []
    for before in range(0, config.epochs, link):
        end = min(before + link, config.epochs)
        links.append(Job(function, part(config, before, end), inputs, after=links[-1] if links else None, waits=True))
    return tuple(links)


# Training


@dataclass(frozen=True)
class Linked:
    """The states that a member of a call may continue from: those of the same training, up to epoch `latest`.

    `training` identifies the training by everything that bears on it except its length.
    """

    training: str
    latest: int


def train_chains(spec: Spec, members: Mapping[int, Member], linked: Mapping[int, Linked]) -> Iterator[Outcome]:
    """`trainer.train_numbered` for members that continue from the checkpoints given to their jobs.

    Members and `linked` are by the jobs' index in the call. Wanted states are left before their outcomes are yielded.
    """
    from tasks.training import states, trainer

    going_on = {
        index: replace(
            member,
            start=states.start(index, linked[index].training, spec.learning, linked[index].latest),
            returns_state=checkpoints.wanted(index),
        )
        for index, member in members.items()
    }
    for index, outcome in trainer.train_by_index(spec, going_on):
        if not isinstance(outcome, Exception) and outcome.state is not None:
            checkpoints.leave(index, states.pack(outcome.state, linked[index].training))
        yield index, outcome
