from __future__ import annotations

from dataclasses import replace

from orchestrator.executors.cluster import Sent, calls_with_slots
from tests.orchestrator.executors.jobs import call


def test_calls_run_in_the_order_in_which_they_were_sent_as_far_as_there_are_places() -> None:
    sent = [Sent(call("double", 1.0, first=number)) for number in range(1, 5)]
    assert [(1, 0.0), (2, 0.0)] == [(each.number, seconds) for each, seconds in calls_with_slots(sent, 2, 0, now=10.0)]
    del sent[0]
    assert [(2, 5.0), (3, 0.0)] == [(each.number, seconds) for each, seconds in calls_with_slots(sent, 2, 0, now=15.0)]


def test_calls_on_gpus_take_their_parts_of_these_and_no_processor() -> None:
    halves = [Sent(replace(call("on_gpu", 1.0, first=number), gpus=0.5)) for number in range(1, 5)]
    sent = [*halves, Sent(call("double", 1.0, first=5)), Sent(call("double", 1.0, first=6))]
    assert [1, 2, 5] == [each.number for each, _ in calls_with_slots(sent, 1, 1, now=0.0)]
    assert [5, 6] == [each.number for each, _ in calls_with_slots(sent, 2, 0, now=0.0)]
