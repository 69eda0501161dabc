"""Compares the schedule with a model: in every history, it keeps its rules and finishes.

The seeded histories are many and fast, and Hypothesis finds the shortest one that breaks a rule. ENGRAM_HISTORIES sets
the number of histories to try, instead of the few that always run.
"""

from __future__ import annotations

import os

import hypothesis.strategies as st
from hypothesis import HealthCheck
from hypothesis import settings as trying
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.histories import FATES, SHAPES, Model, ScheduleSettings, history, shape

SEARCH = int(os.environ.get("ENGRAM_HISTORIES", "0"))
SOME = st.lists(st.integers(0, 8), min_size=1, max_size=3)


def test_no_seeded_history_breaks_a_rule() -> None:
    for seed in range(SEARCH or 2000):
        history(seed)


class Histories(RuleBasedStateMachine):
    """A history chosen by Hypothesis. The model itself checks each step."""

    @initialize(
        number=st.integers(0, SHAPES - 1),
        stored_numbers=st.sets(st.integers(0, 8)),
        settings=st.builds(
            ScheduleSettings,
            slots=st.integers(1, 3),
            gpus=st.integers(0, 2),
            sharers=st.sampled_from((1, 4)),
            together=st.sampled_from((None, 1, 2, 3, 12)),
            fail_fast=st.booleans(),
            seconds=st.booleans(),
        ),
    )
    def begin(self, number: int, stored_numbers: set[int], settings: ScheduleSettings) -> None:
        plan = shape(number)
        self.model = Model(plan, settings, [key for i, key in enumerate(plan.jobs) if i in stored_numbers])

    @rule(room=st.booleans())
    def send(self, room: bool) -> None:
        self.model.send(room)

    @rule()
    def send_all(self) -> None:
        while self.model.send():
            pass

    @rule(which=st.integers(0, 8), fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=4))
    def answer(self, which: int, fates: list[str]) -> None:
        self.model.answer(which, fates)

    @rule(which=st.integers(0, 8))
    def harm(self, which: int) -> None:
        self.model.harm(which)

    @rule(which=SOME)
    def defer(self, which: list[int]) -> None:
        self.model.defer(which)

    @rule(which=SOME)
    def arrive(self, which: list[int]) -> None:
        self.model.arrive(which)

    @rule(which=SOME)
    def reclaim(self, which: list[int]) -> None:
        self.model.reclaim(which)

    @rule(slots=st.integers(1, 3), gpus=st.integers(0, 2))
    def resize(self, slots: int, gpus: int) -> None:
        self.model.resize(slots, gpus)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.finish()


TestHistories = Histories.TestCase
TestHistories.settings = trying(
    max_examples=SEARCH or 50,
    stateful_step_count=30,
    derandomize=not SEARCH,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
