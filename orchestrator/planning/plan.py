"""A plan: all jobs needed to compute some roots. Each job appears once, after its inputs.

The plan is complete before any job runs. The links of a chain are also in order, but a link is planned only if a job
reads it or the next link waits for it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from orchestrator.errors import EngramError, SpecError
from orchestrator.planning.commitment import check_commitment, draw_of
from orchestrator.planning.identity import accept_code, key_of
from orchestrator.spec import audits
from orchestrator.spec.resolve import Cell
from tasks.contract.job import Job, Roots, Work, marks, resources_of
from tasks.contract.resources import NO_RESOURCES, Resources
from tasks.datasets.dataset import DatasetError


@dataclass(frozen=True)
class Plan:
    """The jobs by key (each after its dependencies), the keys that each job reads, and the keys of each named root.

    `after` maps each link of a chain to the previous link. If the previous link is not planned, only its state is used.
    """

    jobs: Mapping[str, Job]
    inputs: Mapping[str, tuple[str, ...]]
    roots: Mapping[str, tuple[str, ...]]
    after: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_roots(cls, roots: Roots) -> Plan:
        """Build the plan for named roots and all their inputs. Jobs with the same key are merged."""
        jobs: dict[str, Job] = {}
        inputs: dict[str, tuple[str, ...]] = {}
        following: dict[str, Job] = {}  # links after the first one in a chain, by their own keys
        keys: dict[int, str] = {}  # by id of each Job seen; `roots` keeps the objects alive
        planned_ids: set[int] = set()  # ids of planned jobs
        new: list[str] = []  # planned keys whose chains have not been followed yet

        def visit(root: Job, is_planned: bool = True) -> str:
            visited: Container[int] = planned_ids if is_planned else keys
            stack = [root]
            while stack:  # iterative, because a plan may be deeper than Python's stack
                job = stack[-1]
                waiting = [below for below in job.inputs if id(below) not in visited]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                if id(job) not in visited:
                    reads = tuple(keys[id(below)] for below in job.inputs)
                    key = keys[id(job)] = keys.get(id(job)) or key_of(job, reads)
                    if is_planned:
                        planned_ids.add(id(job))
                        jobs.setdefault(key, job)
                        inputs.setdefault(key, reads)
                        new.append(key)
                    if job.after is not None and (job.waits or key not in following):
                        following[key] = job
            return keys[id(root)]

        named_roots = {
            name: tuple(dict.fromkeys(visit(job) for job in (root if isinstance(root, tuple) else (root,))))
            for name, root in roots.items()
        }
        after: dict[str, str] = {}
        while new:  # the first links of a chain may not be planned
            job = following.get(key := new.pop())
            if job is not None and job.after is not None and key not in after:
                after[key] = visit(job.after, is_planned=job.waits)
                new.append(after[key])
        return _order_links(jobs, inputs, named_roots, after)

    @classmethod
    def union(cls, plans: Iterable[Plan]) -> Plan:
        """Merge several plans into one without roots. Shared jobs appear once."""
        plans = list(plans)
        if len(plans) == 1:
            return replace(plans[0], roots={})
        jobs: dict[str, Job] = {}
        inputs: dict[str, tuple[str, ...]] = {}
        after: dict[str, str] = {}
        for plan in plans:
            jobs.update(plan.jobs)
            inputs.update(plan.inputs)
            after.update(plan.after)
        return _order_links(jobs, inputs, {}, after)

    def missing(self, stored_keys: Container[str]) -> list[str]:
        """Return the planned keys that are not stored, each after its dependencies."""
        return [key for key in self.jobs if key not in stored_keys]

    def dependencies(self, key: str) -> tuple[str, ...]:
        """Return the distinct keys that a key waits for: its inputs, and the previous link if it is planned."""
        previous_link = self.after.get(key, "")
        if previous_link in self.jobs:
            waits = (*self.inputs[key], previous_link)
        else:
            waits = self.inputs[key]
        if len(waits) > 1:
            return tuple(dict.fromkeys(waits))
        return waits

    def chain(self, key: str) -> Iterator[str]:
        """Yield the preceding links of a key, nearest first, whether planned or not."""
        passed = {key}
        while (key := self.after.get(key, key)) not in passed:
            passed.add(key)
            yield key

    @cached_property
    def following(self) -> Mapping[str, tuple[str, ...]]:
        """The planned links that follow each link."""
        following: dict[str, tuple[str, ...]] = {}
        for key, previous_link in self.after.items():
            if key in self.jobs:
                following[previous_link] = (*following.get(previous_link, ()), key)
        return following

    @cached_property
    def groups(self) -> Mapping[str, str]:
        """The group of every job, by key. Jobs in one group may share a call and take about the same time."""
        names: dict[str, str] = {}
        groups = {key: _group_of(job, self.resources.get(key, NO_RESOURCES)) for key, job in self.jobs.items()}
        return {key: names.setdefault(name, name) for key, name in groups.items()}

    @cached_property
    def resources(self) -> Mapping[str, Resources]:
        """The resources of the jobs that need particular ones, by key."""
        needed = {}
        for key, job in self.jobs.items():
            resources = resources_of(job)
            if resources is not NO_RESOURCES and resources != NO_RESOURCES:  # the first test is fast
                needed[key] = resources
        return needed

    def dependents(self, keys: Container[str]) -> set[str]:
        """Return these keys and all keys that depend on them, directly or indirectly."""
        dependent_keys: set[str] = set()
        for key in self.jobs:
            if key in keys or any(below in dependent_keys for below in self.dependencies(key)):
                dependent_keys.add(key)
        return dependent_keys

    @cached_property
    def tasks(self) -> Mapping[str, str]:
        """The task name of every job, by key."""
        return {key: marks(job.function).name for key, job in self.jobs.items()}

    @cached_property
    def trains(self) -> Mapping[str, int]:
        """The number of networks trained by one job, for each training task."""
        functions = {job.function for job in self.jobs.values()}
        return {mark.name: mark.trains for mark in map(marks, functions) if mark.trains}

    def task(self, key: str) -> str:
        """Return the task name for a key."""
        return self.tasks[key]

    def work(self, key: str) -> Work | None:
        """Return what a job does after the previous link of its chain, or None if its task does not state its work.

        It is kept, because some tasks draw the rows of a training to count them.
        """
        if key not in self._works:
            job = self.jobs[key]
            count = marks(job.function).work
            work = None if count is None else count(job.config)
            if work is not None and count is not None and job.after is not None:
                work = work.beyond(count(job.after.config))
            self._works[key] = work
        return self._works[key]

    @cached_property
    def _works(self) -> dict[str, Work | None]:
        return {}

    def count(self, keys: Iterable[str] | None = None) -> Counter[str]:
        """Count the jobs per task."""
        return Counter(self.tasks.values() if keys is None else map(self.tasks.__getitem__, keys))

    def trainings(self, keys: Iterable[str] | None = None) -> int:
        """Return the number of networks that these jobs train. By default, all jobs are counted."""
        return sum(self.trains.get(task, 0) * jobs for task, jobs in self.count(keys).items())

    def below(self, keys: Iterable[str]) -> Plan:
        """Return the plan of these jobs and their dependencies."""
        return Plan.from_roots({"": tuple(self.jobs[key] for key in keys)})

    def drop_keys(self, lost_keys: Container[str]) -> Plan:
        """Return the plan of the jobs that can still be computed if these keys are lost.

        A gathering job keeps its remaining inputs, which changes its key. Any other job that reads a lost key is lost
        too, as is a link that follows a lost one. A root keeps its remaining parts.
        """
        kept_jobs: dict[str, Job] = {}  # by key in this plan
        for key, job in self.jobs.items():
            remaining_inputs = [below for below in self.inputs[key] if below in kept_jobs]
            has_all_inputs = len(remaining_inputs) == len(self.inputs[key])
            previous_link = self.after.get(key, "")
            if key in lost_keys or (previous_link in self.jobs and previous_link not in kept_jobs):
                continue
            if not (has_all_inputs or (marks(job.function).gathers and remaining_inputs)):
                continue
            is_unchanged = has_all_inputs and all(kept_jobs[below] is self.jobs[below] for below in remaining_inputs)
            if is_unchanged:
                kept_jobs[key] = job
            else:
                kept_jobs[key] = replace(job, inputs=tuple(kept_jobs[below] for below in remaining_inputs))
        roots = {name: tuple(kept_jobs[key] for key in keys if key in kept_jobs) for name, keys in self.roots.items()}
        return Plan.from_roots({name: jobs for name, jobs in roots.items() if jobs})


def _order_links(
    jobs: Mapping[str, Job],
    inputs: Mapping[str, tuple[str, ...]],
    roots: Mapping[str, tuple[str, ...]],
    after: Mapping[str, str],
) -> Plan:
    """Order the plan so that every link follows the previous one. Otherwise keep the given order, inputs first."""
    plan = Plan(jobs, inputs, roots, after)
    if not after:
        return plan
    order: dict[str, None] = {}
    for key in jobs:
        path = {key: None}
        while path:
            last = next(reversed(path))
            below = next((below for below in plan.dependencies(last) if below not in order), None)
            if below is None:
                order[last] = path.pop(last)
            elif below in path:
                raise ValueError(f"{plan.task(key)} {key[:12]} comes after a link that comes after it")
            else:
                path[below] = None
    return Plan({key: jobs[key] for key in order}, {key: inputs[key] for key in order}, roots, after)


def plan_of(cell: Cell) -> Plan:
    """Return the plan of a cell.

    Raises SpecError if the audit rejects the configuration for its data, or if a committed draw was changed.
    """
    try:
        audit = audits.find(cell.audit).audit
        draw = draw_of(cell.audit, cell.config)
        if draw is not None:
            check_commitment(draw)
        with accept_code(cell.stand_ins):
            return Plan.from_roots(audit.plan(cell.config))
    except DatasetError as error:  # removed or changed since it was pinned
        raise EngramError(str(error)) from None
    except ValueError as error:
        raise SpecError(f"{cell.audit}: {error}") from None


def _group_of(job: Job, resources: Resources) -> str:
    """Return the group name of jobs that may share a call with this one and take about the same time.

    They need the same resources. Another time limit changes nothing.
    """
    mark = marks(job.function)
    properties = []
    if mark.batch_key is not None:
        properties.append(repr(mark.batch_key(job.config)))
    if resources.gpus or resources.cpus or resources.memory:
        properties.append(f"{resources.gpus} GPUs, {resources.cpus} CPUs, {int(resources.memory)} bytes")
    if not properties:
        return mark.name
    return f"{mark.name}/{hashlib.sha256(' '.join(properties).encode()).hexdigest()[:12]}"
