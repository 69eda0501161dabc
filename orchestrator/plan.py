"""A plan: the jobs below some roots, each job once, inputs before their readers. A value, known before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.identity import key_of
from tasks.job import Job, Roots, marks


@dataclass(frozen=True)
class Plan:
    """The jobs by key (inputs first), the keys each reads, and the keys behind each named root."""

    jobs: Mapping[str, Job]
    inputs: Mapping[str, tuple[str, ...]]
    roots: Mapping[str, tuple[str, ...]]

    @classmethod
    def below(cls, roots: Roots) -> Plan:
        """The plan of named roots and all that they read. Equal jobs (same key) become one."""
        jobs: dict[str, Job] = {}
        inputs: dict[str, tuple[str, ...]] = {}
        keys: dict[int, str] = {}  # of the Job objects seen, which `roots` keeps alive

        def visit(root: Job) -> str:
            stack = [root]
            while stack:  # not recursive: a chain of links may be deeper than Python's stack
                job = stack[-1]
                waiting = [below for below in job.inputs if id(below) not in keys]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                if id(job) not in keys:
                    reads = tuple(keys[id(below)] for below in job.inputs)
                    key = keys[id(job)] = key_of(job, reads)
                    jobs.setdefault(key, job)
                    inputs.setdefault(key, reads)
            return keys[id(root)]

        named = {
            name: tuple(dict.fromkeys(visit(job) for job in (root if isinstance(root, tuple) else (root,))))
            for name, root in roots.items()
        }
        return cls(jobs, inputs, named)

    @classmethod
    def union(cls, plans: Iterable[Plan]) -> Plan:
        """Several plans as one, without roots: what they share is there once."""
        jobs: dict[str, Job] = {}
        inputs: dict[str, tuple[str, ...]] = {}
        for plan in plans:
            jobs.update(plan.jobs)
            inputs.update(plan.inputs)
        return cls(jobs, inputs, {})

    def missing(self, stored: Container[str]) -> list[str]:
        """The keys that are planned and not stored, inputs first."""
        return [key for key in self.jobs if key not in stored]

    def upon(self, keys: Container[str]) -> set[str]:
        """These keys and all that read them, at whatever distance."""
        reached: set[str] = set()
        for key, inputs in self.inputs.items():
            if key in keys or any(below in reached for below in inputs):
                reached.add(key)
        return reached

    def task(self, key: str) -> str:
        """The name of the key's task."""
        return marks(self.jobs[key].function).name

    def count(self, keys: Iterable[str] | None = None) -> Counter[str]:
        """Jobs per task."""
        return Counter(map(self.task, self.jobs if keys is None else keys))

    def without(self, lost: Container[str]) -> Plan:
        """The plan of what can still be had when these keys cannot.

        A job that gathers goes on with the inputs that are left (its key follows from them); any other job that reads
        something lost is lost too. A root keeps the parts that are left.
        """
        kept: dict[str, Job] = {}  # by the key in this plan
        for key, job in self.jobs.items():
            left = [below for below in self.inputs[key] if below in kept]
            whole = len(left) == len(self.inputs[key])
            if key in lost or not (whole or (marks(job.function).gathers and left)):
                continue
            unchanged = whole and all(kept[below] is self.jobs[below] for below in left)
            kept[key] = job if unchanged else replace(job, inputs=tuple(kept[below] for below in left))
        roots = {name: tuple(kept[key] for key in keys if key in kept) for name, keys in self.roots.items()}
        return Plan.below({name: jobs for name, jobs in roots.items() if jobs})
