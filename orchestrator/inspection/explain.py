"""Explain why a result was or was not reused, and recompute one job without storing it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from orchestrator.errors import Absent, Damaged, EngramError, SpecError, StoreError
from orchestrator.inspection import status
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.code_changes import changes_of_run, describe_accepted
from orchestrator.run_folder.journal import Journal, has_current_keys
from orchestrator.run_folder.progress import stored_results
from orchestrator.spec.config_parts import plain
from orchestrator.store import Store
from orchestrator.store.failure_log import FailureLog
from tasks.contract.job import Job, marks
from tasks.user_code.acceptance import use_stand_ins
from tasks.worker.compute_context import STRATEGIES, ComputeContext, StrategyName, use_context

SHORTEST = 4  # minimum number of hexadecimal digits in a key prefix
MAX_COMPARED = 1000  # maximum number of stored results searched for the nearest one


def run(journal: Journal, store: Store) -> dict[str, Any]:
    """Count the jobs of a run per task: planned, reused by its last start, computed by it, failed, and absent now.

    `code` contains one line for each user file that has changed since the run was planned.
    """
    stored_keys = store.keys()
    tasks: dict[str, str] = {}
    events: dict[str, set[str]] = {"stored": set(), "done": set(), "failed": set()}
    for part in journal.parts():
        tasks |= part.tasks()
        for event in part.last_start():
            if event["event"] == "stored":
                events["stored"].update(*stored_results(event).values())
            elif event["event"] in events and "key" in event:
                events[event["event"]].add(event["key"])
    sets = {
        "planned": set(tasks),
        "reused": events["stored"] - events["done"],
        "computed": events["done"],
        "failed": events["failed"] - stored_keys,
        "absent": set(tasks) - stored_keys,
    }
    counts: dict[str, Counter[str]] = {}
    for name, keys in sets.items():
        counts[name] = Counter(tasks.get(key, "") for key in keys)
    rows: list[dict[str, Any]] = []
    for task in dict.fromkeys(tasks.values()):
        rows.append({"task": task} | {name: counts[name][task] for name in sets})
    code: list[str] = []
    for part in journal.parts():
        code.extend(_code_lines(part, len(set(part.tasks()) & stored_keys)))
    return {"run": journal.run, "audit": journal.about()["audit"], "tasks": rows, "code": code}


def _code_lines(journal: Journal, stored_count: int) -> Iterator[str]:
    """Yield one line per code change since a run was planned, with the number of results that it invalidates."""
    yield from describe_accepted(journal.about())
    try:
        changes = changes_of_run(journal)
    except EngramError as error:  # the code or its audit is not on this machine
        yield str(error)
        return
    for change in changes:
        yield f"{change.describe()}: with the present code, {stored_count} of the run's stored results cannot be reused"


class PlannedKeys:
    """The plans of a store's runs, each read once.

    `tasks` maps every planned key to its task. `current_tasks` contains only keys of the current format.
    """

    def __init__(self, store: Store) -> None:
        self._runs = [(journal, _tasks(journal)) for journal in status.journals(store).values()]
        self.tasks: dict[str, str] = {}
        self.current_tasks: dict[str, str] = {}
        for journal, tasks in self._runs:
            self.tasks |= tasks
            with suppress(StoreError):  # the run cannot be read
                if has_current_keys(journal.about()):
                    self.current_tasks |= tasks

    def runs_with(self, key: str) -> list[Journal]:
        """Return the runs that planned this key."""
        return [journal for journal, tasks in self._runs if key in tasks]


def resolve_key(store: Store, word: str) -> str:
    """Return the only stored or planned key with this prefix. Raises SpecError if there is none or more than one."""
    if len(word) >= SHORTEST and set(word) <= set("0123456789abcdef"):
        all_keys = store.keys().union(PlannedKeys(store).tasks)
        matching_keys = sorted(key for key in all_keys if key.startswith(word))
        if len(matching_keys) == 1:
            return matching_keys[0]
        if matching_keys:
            raise SpecError(
                f"{len(matching_keys)} keys begin with {word}: {', '.join(key[:16] for key in matching_keys[:5])}; "
                "give more characters"
            )
    raise SpecError(f"{word!r} is neither a run nor a key in {store.location}; `engram runs` lists the runs")


def find_run_or_key(store: Store, word: str) -> Journal | str:
    """Return the run with this name, or else the only key with this prefix. Raises SpecError for none or several."""
    try:
        return status.find(store, word)
    except SpecError as error:
        if "is ambiguous" in str(error):
            raise
    return resolve_key(store, word)


def key(store: Store, name: str) -> dict[str, Any]:
    """Describe a key: its record if it is stored, otherwise why it is not, and the nearest stored key."""
    planned_keys = PlannedKeys(store)
    runs = planned_keys.runs_with(name)
    stored_keys = store.keys()
    answer: dict[str, Any] = {"key": name, "runs": [journal.run for journal in runs]}
    if name in stored_keys:
        try:
            record = dict(store.record(name))
            inputs = [
                {"key": input_key, "task": planned_keys.tasks.get(input_key, ""), "stored": input_key in stored_keys}
                for input_key in record["inputs"]
            ]
            first = {name: record.pop(name) for name in ("task", "version", "config")}
            return answer | {"state": "stored"} | first | {"inputs": inputs} | {"key": name, **record, "inputs": inputs}
        except StoreError as error:
            answer["problem"] = str(error)
    if not runs:
        return answer | {"state": "absent"}
    job, plan, _ = _newest_planned_job(store, name, runs)
    absent = [input_key for input_key in plan.dependencies(name) if input_key not in stored_keys]
    code = [line for journal in runs for line in _code_lines(journal, len(set(journal.tasks()) & stored_keys))]
    failure = store.failure(name)
    if failure is None:
        traceback = None
    else:
        traceback = FailureLog.from_text(failure).traceback
    living = any(status.status(journal, store).state == "running" for journal in runs)
    mark = marks(job.function)
    same_task = [key for key, task in planned_keys.current_tasks.items() if task == mark.name]
    return answer | {
        "task": mark.name,
        "version": mark.version,
        "config": plain(job.config),
        "inputs": [
            {"key": input_key, "task": plan.task(input_key), "stored": input_key in stored_keys}
            for input_key in plan.inputs[name]
        ],
        "state": "failed" if traceback else "waiting" if absent or living else "absent",
        "waits_for": absent,
        "traceback": traceback,
        "code": list(dict.fromkeys(code)),
        "nearest": _nearest(store, name, job, plan, same_task),
    }


def planned_job(store: Store, name: str) -> tuple[Job, Plan, Mapping[str, str]]:
    """Return the job of a key, the plan of the newest run that has it, and the stand-in digests of accepted code.

    Raises EngramError if the current code plans no such job.
    """
    return _newest_planned_job(store, name, PlannedKeys(store).runs_with(name))


def _newest_planned_job(store: Store, name: str, journals: Iterable[Journal]) -> tuple[Job, Plan, Mapping[str, str]]:
    from orchestrator.run_folder.journal import reopen_run

    problem: EngramError | None = None
    for journal in sorted(journals, key=lambda run: run.about().get("created", ""), reverse=True):
        try:
            cell, plan = reopen_run(journal)
            return plan.jobs[name], plan, cell.stand_ins
        except EngramError as error:
            problem = problem or error
    raise problem or EngramError(f"no run in {store.location} plans {name[:12]}")


def _nearest(store: Store, name: str, job: Job, plan: Plan, same_task: Iterable[str]) -> dict[str, Any] | None:
    """Return the stored result of the same task whose configuration differs in the fewest fields, with these fields."""
    stored_keys = store.keys()
    mark = marks(job.function)
    config = plain(job.config, has_execution=False)
    candidates: list[tuple[int, dict[str, Any]]] = []
    for other_key in same_task:
        if other_key not in stored_keys:
            continue
        if len(candidates) >= MAX_COMPARED:
            break
        try:
            record = store.record(other_key)
        except StoreError:
            continue
        fields = dict(_differences(config, record["config"]))
        description: dict[str, Any] = {"key": other_key, "fields": {path: list(pair) for path, pair in fields.items()}}
        if record["version"] != mark.version:
            description["version"] = [mark.version, record["version"]]
        if list(record["inputs"]) != list(plan.inputs[name]):
            description["inputs"] = "differ"
        candidates.append((len(fields) + ("version" in description) + ("inputs" in description), description))
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None


def _differences(present: Any, earlier: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield each field in which two plain configurations differ: dotted path and (present, earlier) values."""
    if isinstance(present, Mapping) and isinstance(earlier, Mapping):
        for name in dict.fromkeys((*present, *earlier)):
            yield from _differences(present.get(name), earlier.get(name), f"{path}.{name}" if path else name)
    elif present != earlier:
        yield path, (present, earlier)


def _tasks(journal: Journal) -> Mapping[str, str]:
    """Map the planned keys of a run to their tasks.

    Returns an empty mapping for a sweep, whose cells have the keys, and for an unreadable run.
    """
    try:
        if (journal.folder / "plan.json").exists():
            return journal.tasks()
        return {}
    except StoreError:
        return {}


def rerun(store: Store, key: str) -> dict[str, Any]:
    """Compute the table of a planned key and compare it with the stored one. Exceptions of the task are propagated.

    Models are trained with the strategy named in the record of the stored result.

    `same` states whether the tables are equal bit for bit, or is None if no result is stored. `differs` lists the
    unequal columns. Raises EngramError if an input is not stored.
    """
    # Use one thread, as in a worker, because the order of a sum affects its last bits.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    job, plan, stand_ins = planned_job(store, key)
    try:
        inputs = [store.read(input_key) for input_key in plan.inputs[key]]
    except (Absent, Damaged) as error:
        raise EngramError(f"an input of {key[:12]} is missing: {error}; resume its run first") from None
    clock = time.perf_counter()
    with use_context(ComputeContext(_strategy_of(store, key))), use_stand_ins(stand_ins):
        table = job.function(job.config, inputs)
    seconds = time.perf_counter() - clock
    try:
        stored_table = store.read(key)
    except (Absent, Damaged):
        stored_table = None
    differs = []
    if stored_table is not None:
        differs = differences(_with_earlier_code(table, stand_ins), _with_earlier_code(stored_table, stand_ins))
    if stored_table is None:
        is_same = None
    else:
        is_same = not differs
    return {
        "key": key,
        "task": plan.task(key),
        "seconds": seconds,
        "rows": len(table),
        "same": is_same,
        "differs": differs,
    }


def _with_earlier_code(table: Any, stand_ins: Mapping[str, str]) -> Any:
    """Replace digests of accepted code by the earlier ones, as in keys, because model tables name their code."""
    import pyarrow as pa

    for index, field in enumerate(table.schema) if stand_ins else ():
        if pa.types.is_string(field.type) or pa.types.is_struct(field.type):
            cells = []
            for cell in table.column(index).to_pylist():
                cells.append(_replace_texts(cell, stand_ins))
            table = table.set_column(index, field, pa.array(cells, field.type))
    return table


def _replace_texts(cell: Any, stand_ins: Mapping[str, str]) -> Any:
    """Replace each key of `stand_ins` by its value in the text of a cell."""
    if isinstance(cell, dict):
        return {name: _replace_texts(part, stand_ins) for name, part in cell.items()}
    if isinstance(cell, str):
        for present, earlier in stand_ins.items():
            cell = cell.replace(present, earlier)
    return cell


def _strategy_of(store: Store, key: str) -> StrategyName:
    """Return the strategy that computed a stored result, or "auto" if its record names none."""
    try:
        way: StrategyName = store.record(key, check=False).get("way", "auto")
    except (Absent, Damaged):
        return "auto"
    return way if way in STRATEGIES else "auto"


def differences(table: Any, stored_table: Any) -> list[dict[str, Any]]:
    """Return the columns in which two tables differ, with the number of rows and the largest numerical difference."""
    from orchestrator.store.entry import content

    if content(table) == content(stored_table):
        return []
    if table.schema != stored_table.schema:
        return [{"column": None, "problem": f"columns are {table.schema.names}, were {stored_table.schema.names}"}]
    if len(table) != len(stored_table):
        return [{"column": None, "problem": f"{len(table)} rows, were {len(stored_table)}"}]
    columns = []
    for name in table.schema.names:
        if content(table.select([name])) != content(stored_table.select([name])):
            pairs = list(zip(table[name].to_pylist(), stored_table[name].to_pylist(), strict=True))
            numbers = []
            for pair in pairs:
                if all(isinstance(value, int | float) and value == value for value in pair):
                    numbers.append(pair)
            distances = [abs(a - b) for a, b in numbers]
            rows = sum(a != b and not (a != a and b != b) for a, b in pairs)
            columns.append({"column": name, "rows": rows, "largest": max(distances, default=None)})
    return columns or [{"column": None, "problem": "the schemas' metadata differ"}]
