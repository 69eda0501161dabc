"""A task reads and saves states by its jobs' positions in the call; outside a run there are none."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.worker import checkpoints
from tasks.worker.checkpoints import Link


def test_outside_a_run_there_are_no_states() -> None:
    assert list(checkpoints.earlier_checkpoints(3)) == []
    assert not checkpoints.is_state_requested(3)
    checkpoints.leave(3, b"a state")


def test_each_job_has_its_own_states() -> None:
    saved_states: list[bytes] = []
    with checkpoints.use_links([Link(lambda: [b"near", b"far"]), Link(leave=saved_states.append)]):
        assert list(checkpoints.earlier_checkpoints(0)) == [b"near", b"far"]
        assert list(checkpoints.earlier_checkpoints(1)) == []
        assert not checkpoints.is_state_requested(0)
        assert checkpoints.is_state_requested(1)
        checkpoints.leave(0, b"unwanted")
        checkpoints.leave(1, b"mine")
    assert saved_states == [b"mine"]
    assert not checkpoints.is_state_requested(1)


def test_state_is_read_only_when_needed() -> None:
    numbers_read: list[int] = []

    def states() -> Iterator[bytes]:
        for number in range(3):
            numbers_read.append(number)
            yield bytes([number])

    with checkpoints.use_links([Link(states)]):
        assert next(checkpoints.earlier_checkpoints(0)) == b"\0"
    assert numbers_read == [0]
