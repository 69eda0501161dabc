"""Information from other runs in the store: job times, keys being computed, and checkpoints still needed."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.planning.plan import Plan
from orchestrator.run_folder import run_files
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, lease
from orchestrator.store.holder import Holder
from orchestrator.store.job_files import remove_settled_states
from orchestrator.store.regular_file import regular_text

RUNS = 20  # number of newest runs to read
SAMPLES = 200  # timings per group in one run


def sweeps_with(cell: Journal) -> Iterator[str]:
    """Yield the sweeps that contain a run as a cell."""
    for folder in sorted(cell.folder.parent.glob("*-sweep-*")):
        with suppress(StoreError):
            if cell.run in Journal(folder).about().get("cells", ()):
                yield folder.name


def write_timings(folder: Path, seconds: Mapping[str, Iterable[float]]) -> None:
    """Write a run's timings by group to its folder, replacing those of the same groups from an earlier start.

    Errors are ignored: a full disk must not stop the run here.
    """
    new_timings = {}
    for group, durations in seconds.items():
        new_timings[group] = [round(duration, 6) for duration in list(durations)[-SAMPLES:]]
    if not any(new_timings.values()):
        return
    try:
        rows = _read_timings(folder / "timings.json") | new_timings
        draft = folder / ".timings.json"
        draft.write_text(json.dumps(rows))
        draft.replace(folder / "timings.json")
    except OSError:
        return


def checks_folder(runs: Path) -> Path:
    """Return the folder of the timings of `engram check-training`, next to the folder of the runs."""
    return runs.parent / "checks"


def mean_seconds(runs: Path) -> dict[str, float]:
    """Return the mean seconds per job by group, over the newest runs with timings.

    Timings of `engram check-training` count like those of a run.
    """
    files = [*runs.glob("*/timings.json"), *checks_folder(runs).glob("*/timings.json")]
    files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    durations_by_group: dict[str, list[float]] = defaultdict(list)
    for path in files[:RUNS]:
        for group, seconds in _read_timings(path).items():
            durations_by_group[group].extend(seconds)
    return {group: sum(seconds) / len(seconds) for group, seconds in durations_by_group.items() if seconds}


def _read_timings(path: Path) -> dict[str, list[float]]:
    """Return a run's timings by group.

    Returns no timings if they cannot be read. The expected time is then merely unknown.
    """
    try:
        return dict(run_files.parse_timings(json.loads(regular_text(path))))
    except (OSError, ValueError, RecursionError):
        return {}


def jobs_by_kind(
    plan: Plan, missing: Iterable[str], seconds: Mapping[str, float]
) -> dict[str, tuple[int, float | None]]:
    """Count the missing jobs by group, with the expected seconds per job. These are None if no job was ever timed."""
    counts = Counter(plan.groups[key] for key in missing)
    return {group: (count, seconds.get(group)) for group, count in counts.items()}


def mean_seconds_by_task(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the mean seconds per job by task, averaged over its groups."""
    durations_by_task: dict[str, list[float]] = defaultdict(list)
    for group, duration in seconds.items():
        durations_by_task[group.partition("/")[0]].append(duration)
    result = {}
    for task, durations in durations_by_task.items():
        result[task] = sum(durations) / len(durations)
    return result


def startup_group(address: str | None) -> str:
    """Return the group name for timings of starting and ending an executor."""
    if address in ("none", "pool", "local"):
        return f"around, {address}"
    return "around, local" if address is None else "around, cluster"


@dataclass
class OtherRun:
    """An earlier run with a living driver: its keys, and when its log last grew by this machine's clock."""

    holder: Holder
    keys: frozenset[str]
    size: int
    last_growth: float


class ConcurrentRuns:
    """The runs in a folder that living drivers have held since before `start`, excluding `own_runs`.

    Any two runs agree on which of them is earlier, so exactly one of them computes their shared keys. Only the files of
    living drivers are read, regardless of how many runs have ended.
    """

    def __init__(
        self,
        runs: Path,
        own_runs: Collection[str],
        start: float,
        now: lease.Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs
        self._own_runs = own_runs
        self._now = now
        self._monotonic = monotonic
        self._start = (start, min(own_runs))
        self._other_runs: dict[str, OtherRun] = {}

    def find_claims(
        self, planned_keys: Set[str], done_keys: Set[str] = frozenset()
    ) -> Mapping[str, tuple[Holder, set[str], float]]:
        """Return the earlier living runs that plan some of our keys.

        Each run is mapped to its driver, the shared keys, and the seconds for which it has been idle.

        Our keys are the `planned_keys` that are not in `done_keys`. They are searched only if there is such a run. A
        driver counts as active while its log grows; idle seconds count from the last growth observed here.
        """
        now = self._monotonic()
        claims = {}
        for run, holder in lease.living_drivers(self._runs, self._now):
            if run in self._own_runs or (holder.since, run) >= self._start:
                continue
            other_run = self._other_runs.get(run)
            if other_run is None or other_run.holder.token != holder.token:
                # Plans do not change, so reuse the keys read earlier.
                if other_run:
                    keys = other_run.keys
                else:
                    keys = self._planned_keys(run)
                other_run = self._other_runs[run] = OtherRun(holder, keys, -1, now)
            shared = set()
            for key in other_run.keys:
                if key in planned_keys and key not in done_keys:
                    shared.add(key)
            if shared:
                size = self._size(run)
                if size != other_run.size:
                    other_run.size = size
                    other_run.last_growth = now
                claims[run] = (holder, shared, now - other_run.last_growth)
        return claims

    def _planned_keys(self, run: str) -> frozenset[str]:
        """Return the planned keys of a run.

        Returns an empty set if its plan is unreadable, so that it blocks no other run.
        """
        try:
            return frozenset(Journal(self._runs / run).tasks())
        except StoreError:
            return frozenset()

    def _size(self, run: str) -> int:
        try:
            return (self._runs / run / "events.jsonl").stat().st_size
        except OSError:
            return 0


class CheckpointGc:
    """Removes checkpoints that no run needs.

    `own_runs` are the names of this start's runs, and `runs` is the folder that contains all runs.

    A checkpoint is needed if some run plans the next link of its chain and that link is not stored.
    """

    def __init__(self, store: Store, runs: Path, own_runs: Collection[str], keep: bool) -> None:
        self._store = store
        self._runs = runs
        self._own_runs = own_runs
        self.keep = keep  # whether to keep the last checkpoint of each chain even if no run needs it
        self._following: dict[str, dict[str, set[str]]] = {}  # next links by run and key; plans do not change
        self._listed_runs: set[str] = set()
        self._listing_time = 0  # modification time of the runs folder when it was last listed

    def pass_over(self, plan: Plan, key: str, done_keys: Container[str]) -> None:
        """Remove the checkpoint from which a stored link continued, unless another link needs it."""
        if key in plan.after:
            self._remove(plan, [plan.after[key]], done_keys)

    def clear(self, plan: Plan, done_keys: Container[str]) -> None:
        """Remove the remaining checkpoints of a run that has ended. With `keep`, keep the last one of each chain.

        Also removes the states of jobs whose results are stored.
        """
        with suppress(StoreError):
            remove_settled_states(self._store, {key for key in plan.jobs if key in done_keys})
        passed_links = set()
        for key in plan.after:
            if key in plan.jobs and key in done_keys:
                for link in plan.chain(key):
                    passed_links.add(link)
        with suppress(StoreError):
            self._remove(
                plan,
                sorted(self._store.states() & (passed_links if self.keep else passed_links | set(plan.jobs))),
                done_keys,
            )

    def _remove(self, plan: Plan, keys: Iterable[str], done_keys: Container[str]) -> None:
        """Remove the checkpoints that no run needs. One that cannot be removed stays."""
        for key in keys:
            with suppress(StoreError, OSError):
                if all(link in done_keys for link in plan.following.get(key, ())) and not self._is_needed_elsewhere(
                    key
                ):
                    self._store.remove_state(key)

    def _is_needed_elsewhere(self, key: str) -> bool:
        """Whether another run plans a later link that is not stored."""
        return any(
            link not in self._store for run in self._runs_with_plan() for link in self._following[run].get(key, ())
        )

    def _runs_with_plan(self) -> list[str]:
        """Return the other runs that have a plan. The folder is listed again only if a run was added or removed."""
        changed = self._runs.stat().st_mtime_ns
        if changed != self._listing_time:
            self._listing_time = changed
            self._listed_runs = {path.name for path in self._runs.glob("[!.]*")} - set(self._own_runs)
        for run in self._listed_runs - set(self._following):
            journal = Journal(self._runs / run)
            if (journal.folder / "plan.json").exists():  # sweeps have no plan
                self._following[run] = {}
                with suppress(StoreError):
                    self._following[run] = journal.following()
        return [run for run in self._following if run in self._listed_runs]
