"""A task asks for states and hands them over by its jobs' places in the call; outside a run there are none."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.worker import checkpoints
from tasks.worker.checkpoints import Link


def test_outside_a_run_nothing_is_given_wanted_or_kept() -> None:
    assert list(checkpoints.earlier_checkpoints(3)) == []
    assert not checkpoints.wanted(3)
    checkpoints.leave(3, b"a state")


def test_each_job_of_a_call_has_its_own_states_and_leaves_its_own() -> None:
    left: list[bytes] = []
    with checkpoints.use_links([Link(lambda: [b"near", b"far"]), Link(leave=left.append)]):
        assert list(checkpoints.earlier_checkpoints(0)) == [b"near", b"far"]
        assert list(checkpoints.earlier_checkpoints(1)) == []
        assert [checkpoints.wanted(index) for index in (0, 1)] == [False, True]
        checkpoints.leave(0, b"unwanted")
        checkpoints.leave(1, b"mine")
    assert left == [b"mine"]
    assert not checkpoints.wanted(1)


def test_a_state_is_read_only_when_it_is_come_to() -> None:
    read: list[int] = []

    def states() -> Iterator[bytes]:
        for number in range(3):
            read.append(number)
            yield bytes([number])

    with checkpoints.use_links([Link(states)]):
        assert next(checkpoints.earlier_checkpoints(0)) == b"\0"
    assert read == [0]
