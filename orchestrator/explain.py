"""Why a result was or was not reused: which jobs of a run were there already, and what there is to say of one key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator import status
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.fields import plain
from orchestrator.journal import Journal
from orchestrator.plan import Plan
from orchestrator.store import Store
from tasks.job import Job, marks

SHORTEST = 4  # hexadecimal digits that name a key
NEIGHBOURS = 1000  # stored results of the same task that are looked at for the nearest


def run(journal: Journal, store: Store) -> dict[str, Any]:
    """Per task of a run: jobs planned, there before its last start, computed by it, failed, and absent now."""
    about = journal.about()
    runs = [journal.beside(name) for name in about.get("cells", ())] or [journal]
    stored = store.keys()
    tasks: dict[str, str] = {}
    events: dict[str, set[str]] = {"stored": set(), "done": set(), "failed": set()}
    for each in runs:
        tasks |= each.tasks()
        for event in status.last_start(each):
            if event["event"] in events and "key" in event:
                events[event["event"]].add(event["key"])
    sets = {
        "planned": set(tasks),
        "reused": events["stored"] - events["done"],
        "computed": events["done"],
        "failed": events["failed"] - stored,
        "absent": set(tasks) - stored,
    }
    counts = {name: Counter(tasks.get(key, "") for key in keys) for name, keys in sets.items()}
    return {
        "run": journal.run,
        "audit": about["audit"],
        "tasks": [
            {"task": task} | {name: counts[name][task] for name in sets} for task in dict.fromkeys(tasks.values())
        ],
    }


def key_named(store: Store, word: str) -> str:
    """The stored or planned key that begins so; SpecError for none or several."""
    if len(word) >= SHORTEST and set(word) <= set("0123456789abcdef"):
        known = store.keys().union(*(_tasks(journal) for journal in status.journals(store).values()))
        close = sorted(key for key in known if key.startswith(word))
        if len(close) == 1:
            return close[0]
        if close:
            raise SpecError(
                f"{len(close)} keys begin with {word}: {', '.join(key[:16] for key in close[:5])}; give more of it"
            )
    raise SpecError(f"{word!r} is neither a run nor a key in {store.location}; `engram runs` lists the runs")


def key(store: Store, name: str) -> dict[str, Any]:
    """What there is to say of a key: its record if it is stored, else why not, and the nearest that is."""
    runs = [journal for journal in status.journals(store).values() if name in _tasks(journal)]
    said: dict[str, Any] = {"key": name, "runs": [journal.run for journal in runs]}
    if name in store:
        try:
            record = dict(store.record(name))
            inputs = [
                {"key": each, "task": _task_of(store, each), "stored": each in store} for each in record["inputs"]
            ]
            first = {name: record.pop(name) for name in ("task", "version", "config")}
            return said | {"state": "stored"} | first | {"inputs": inputs} | {"key": name, **record, "inputs": inputs}
        except StoreError as error:
            said["problem"] = str(error)
    if not runs:
        return said | {"state": "absent"}
    job, plan = planned(store, name)
    absent = [each for each in plan.waits(name) if each not in store]
    traceback = store.failure(name)
    living = any(status.status(journal, store).state == "running" for journal in runs)
    mark = marks(job.function)
    return said | {
        "task": mark.name,
        "version": mark.version,
        "config": plain(job.config),
        "inputs": [{"key": each, "task": plan.task(each), "stored": each in store} for each in plan.inputs[name]],
        "state": "failed" if traceback else "waiting" if absent or living else "absent",
        "waits_for": absent,
        "traceback": traceback,
        "nearest": _nearest(store, name, job, plan),
    }


def planned(store: Store, name: str) -> tuple[Job, Plan]:
    """A key's job, and the plan of the newest run that has it. EngramError where today's code plans none."""
    from orchestrator.runs import reopened

    problem: EngramError | None = None
    having = [journal for journal in status.journals(store).values() if name in _tasks(journal)]
    for journal in sorted(having, key=lambda each: each.about().get("created", ""), reverse=True):
        try:
            plan = reopened(journal)[1]
            return plan.jobs[name], plan
        except EngramError as error:
            problem = problem or error
    raise problem or EngramError(f"no run in {store.location} plans {name[:12]}")


def _nearest(store: Store, name: str, job: Job, plan: Plan) -> dict[str, Any] | None:
    """The stored result of the same task whose config differs in the fewest fields, and in which."""
    mark = marks(job.function)
    config = plain(job.config)
    found: list[tuple[int, dict[str, Any]]] = []
    for other in _same_task(store, mark.name):
        if len(found) >= NEIGHBOURS:
            break
        try:
            record = store.record(other)
        except StoreError:
            continue
        fields = dict(_differences(config, record["config"]))
        says: dict[str, Any] = {"key": other, "fields": {path: list(pair) for path, pair in fields.items()}}
        if record["version"] != mark.version:
            says["version"] = [mark.version, record["version"]]
        if list(record["inputs"]) != list(plan.inputs[name]):
            says["inputs"] = "differ"
        found.append((len(fields) + ("version" in says) + ("inputs" in says), says))
    return min(found, key=lambda each: each[0])[1] if found else None


def _same_task(store: Store, task: str) -> Iterator[str]:
    stored = store.keys()
    seen: set[str] = set()
    for journal in status.journals(store).values():
        for each, name in _tasks(journal).items():
            if name == task and each in stored and each not in seen:
                seen.add(each)
                yield each


def _differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Dotted path -> (here, there) of the fields in which two plain configs differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            yield from _differences(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    elif one != other:
        yield path, (one, other)


def _tasks(journal: Journal) -> Mapping[str, str]:
    """The planned keys of a run with their tasks; none of a sweep (its cells have them), nor of what is unreadable."""
    try:
        return journal.tasks() if (journal.folder / "plan.json").exists() else {}
    except StoreError:
        return {}


def _task_of(store: Store, name: str) -> str:
    return next((tasks[name] for each in status.journals(store).values() if name in (tasks := _tasks(each))), "")
