"""Removal of states of trainings that no unfinished run needs: each is large, and only saves time."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store


class CheckpointGc:
    """Removes checkpoints that no run needs. `own` are the names of this start's runs, `runs` the folder of all runs.

    A state is needed if the next link of its chain is planned in some run and not stored: that run will continue it.
    """

    def __init__(self, store: Store, runs: Path, own: Collection[str], keep: bool) -> None:
        self._store, self._runs, self._own = store, runs, own
        self.keep = keep  # whether the last state of each chain stays though no run needs it
        self._following: dict[str, dict[str, set[str]]] = {}  # the next links by key, by run; plans do not change
        self._runs_there: set[str] = set()
        self._changed = 0  # modification time of the folder of runs when it was last listed

    def pass_over(self, plan: Plan, key: str, done: Container[str]) -> None:
        """Remove the checkpoint that a stored link continued from, unless another link needs it."""
        if key in plan.after:
            self._remove(plan, [plan.after[key]], done)

    def clear(self, plan: Plan, done: Container[str]) -> None:
        """Remove the remaining checkpoints of an ended run, except with `keep` the last of each chain."""
        passed = {link for key in plan.after if key in plan.jobs and key in done for link in plan.chain(key)}
        with suppress(StoreError):
            self._remove(plan, sorted(self._store.states() & (passed if self.keep else passed | set(plan.jobs))), done)

    def _remove(self, plan: Plan, keys: Iterable[str], done: Container[str]) -> None:
        """Remove the checkpoints that no run needs. One that cannot be removed stays."""
        for key in keys:
            with suppress(StoreError, OSError):
                if all(link in done for link in plan.following.get(key, ())) and not self._needed_elsewhere(key):
                    self._store.remove_state(key)

    def _needed_elsewhere(self, key: str) -> bool:
        """Whether another run plans a link after this one that is not stored."""
        return any(link not in self._store for run in self._others() for link in self._following[run].get(key, ()))

    def _others(self) -> list[str]:
        """The other runs with a plan. The folder is listed again only when a run was added to it or removed."""
        changed = self._runs.stat().st_mtime_ns
        if changed != self._changed:
            self._changed = changed
            self._runs_there = {path.name for path in self._runs.glob("[!.]*")} - set(self._own)
        for run in self._runs_there - set(self._following):
            journal = Journal(self._runs / run)
            if (journal.folder / "plan.json").exists():  # a sweep has none
                self._following[run] = {}
                with suppress(StoreError):
                    self._following[run] = journal.following()
        return [run for run in self._following if run in self._runs_there]
