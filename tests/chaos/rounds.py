"""A round of the campaign: an audit, one fault, the user's next steps, and the checks of the final state."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.tables import KEYS, flatten_table
from orchestrator.store import Store, entry, open_store
from orchestrator.store.lease import DRIVERS, LEASE
from tests.support.forks import Fork
from tests.support.shell import CommandResult, Here, Shell

Process = subprocess.Popen[str] | Fork
HANGING = 400.0  # seconds after which a command counts as hanging
STEPS = 4  # that a user takes until a run has finished
SILENT = 3600.0  # seconds: longer than any lease
BAD = ("Traceback", "engram: unexpected", "a bug in engram", "Exception ignored")
RUNS = re.compile(r"cannot read (\S+/runs/[^/]+)/(?:run|plan)\.json: .* move its folder away")
MARKER = re.compile(r"^(?:engram: )?(\S+engram-store\.json) cannot be read", re.MULTILINE)
HELD = re.compile(r"last heartbeat \S+ s ago; wait for it to end")
VOLATILE = "pid"  # a column of the toys: the process that computed a part


@dataclass(frozen=True)
class Subject:
    """An audit with its arguments for `engram run`. `log` gets a line for each computed part of the toys."""

    name: str
    fields: tuple[str, ...]
    log: Path | None = None


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: its folder, including its store, and the digests of each table's parts by key."""

    folder: Path
    run: str
    tables: Mapping[str, Mapping[str, str]]

    @property
    def planned(self) -> int:
        return len({key for parts in self.tables.values() for key in parts})


class Files(Protocol):
    """The files of a store by their names below it."""

    def names(self) -> list[str]: ...
    def get(self, name: str) -> bytes: ...
    def put(self, name: str, data: bytes) -> None: ...
    def delete(self, name: str) -> None: ...


class Folder:
    """The files of a store on a disk. They are changed in place, as by a failing disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())

    def get(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def put(self, name: str, data: bytes) -> None:
        (self.root / name).write_bytes(data)

    def delete(self, name: str) -> None:
        (self.root / name).unlink()


@dataclass
class Round:
    """One audit in a separate folder. `destroyed` contains the keys of the results that the fault has destroyed."""

    subject: Subject
    reference: Reference
    rng: random.Random
    folder: Path
    store: str = ""
    address: str = "none"
    options: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    files: Files = field(init=False)
    destroyed: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)  # results hidden by a stale cache
    problems: list[str] = field(default_factory=list)
    started: list[Process] = field(default_factory=list)
    checks: list[Callable[[], Iterable[str]]] = field(default_factory=list)  # further checks of the final state
    undo: list[Callable[[], object]] = field(default_factory=list)  # in reverse order, when the round ends
    backing: Path = field(init=False)  # the physical folder of a store on a disk

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.store = self.store or str(self.folder / "store")
        self.backing = Path(self.store)
        self.files = Folder(self.backing)

    def command(self, *arguments: str, prefix: Sequence[str] = (), **variables: str) -> Process:
        """Start `engram` with these arguments and the round's store, forked unless it has a prefix or variables."""
        shell = Shell(self.folder)
        shell.env |= {"ENGRAM_STORE": self.store, **self.environment, **variables}
        words = ("-m", "orchestrator", *arguments)
        if prefix or variables:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process: Process = subprocess.Popen(
                [*prefix, sys.executable, *words], cwd=self.folder, env=shell.env, text=True, **pipes
            )
        else:
            process = shell.python(*words)
        self.started.append(process)
        return process

    def start(self, prefix: Sequence[str] = (), **variables: str) -> Process:
        """Start the run."""
        fields = (*self.subject.fields, "--address", self.address, *self.options)
        return self.command("run", self.subject.name, *fields, prefix=prefix, **variables)

    def end(self, process: Process) -> CommandResult:
        """The output of a command until it ends. A traceback is a problem."""
        try:
            result = CommandResult(*process.communicate(timeout=HANGING), process.wait(timeout=HANGING))
        except subprocess.TimeoutExpired:
            process.kill()
            self.problems.append("a command hangs")
            return CommandResult("", "", -1)
        for line in result.stderr.splitlines():
            if any(word in line for word in BAD):
                self.problems.append(f"said: {result.stderr[-1500:]}")
                break
        return result

    def await_share(self, process: Process, upper_share: float = 1.0) -> int:
        """Wait until a random share of the results is stored or the command has ended. Returns the number stored."""
        target_count = self.rng.uniform(0.0, upper_share) * self.reference.planned
        deadline = time.monotonic() + HANGING
        while process.poll() is None and self.count() < target_count and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.count()

    def count(self) -> int:
        if isinstance(self.files, Folder):
            return sum(1 for _ in self.backing.glob("results/*/*.arrow"))
        return sum(name.endswith(entry.SUFFIX) for name in self.files.names())

    def copy_reference(self) -> None:
        """Start from the store of the undisturbed run."""
        if isinstance(self.files, Folder):
            shutil.copytree(self.reference.folder / "store", self.backing, dirs_exist_ok=True)
            return
        for name in (source := Folder(self.reference.folder / "store")).names():
            self.files.put(name, source.get(name))

    @property
    def lease(self) -> Path:
        return self.backing / "runs" / self.reference.run / LEASE

    def pass_time(self) -> None:
        """Make every driver's last heartbeat one hour old."""
        runs = self.backing / "runs"
        for path in (*(runs / DRIVERS).glob("*.json"), *runs.glob(f"*/{LEASE}")):
            os.utime(path, (time.time() - SILENT,) * 2)

    def sound_results(self) -> dict[str, bytes]:
        """The bytes of every sound result by key. Damaged results are not quarantined."""
        sound = {}
        for name in self.files.names():
            key = Path(name).stem
            if name.startswith(f"{entry.RESULTS}/") and name.endswith(entry.SUFFIX) and is_sound(self.files, name, key):
                sound[key] = self.files.get(name)
        return sound

    def close(self) -> None:
        for process in self.started:
            process.kill()
        for action in reversed(self.undo):
            action()


def is_sound(files: Files, name: str, key: str) -> bool:
    try:
        data = pa.py_buffer(files.get(name))
        entry.check(memoryview(data))
        return bool(entry.record_of(data, key))
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return False


def conclude(campaign_round: Round) -> None:
    """Take the user's next steps until the run has finished, and record the problems."""
    before = campaign_round.sound_results()
    log = campaign_round.subject.log
    computed = len(log.read_text()) if log is not None and log.exists() else 0
    earlier = done_keys(campaign_round)
    for step in range(STEPS):
        result = campaign_round.end(campaign_round.start())
        if result.returncode == 0:
            break
        if not follow_advice(campaign_round, result.stderr) and step:
            campaign_round.problems.append(f"exit {result.returncode}: {result.stderr.strip()[-600:]}")
            return
    else:
        campaign_round.problems.append(f"not finished after {STEPS} steps: {result.stderr.strip()[-600:]}")
        return
    here = Here(campaign_round.folder)
    here.env = {**campaign_round.environment, "ENGRAM_STORE": campaign_round.store}
    verified = here.run("verify")
    if verified.returncode:
        campaign_round.problems.append(f"verify: {verified.stdout}{verified.stderr}"[-600:])
    compare_with_reference(campaign_round)
    for check in campaign_round.checks:
        campaign_round.problems.extend(check())
    check_nothing_repeated(campaign_round, before, earlier, "" if log is None else log.read_text()[computed:])


def follow_advice(campaign_round: Round, message: str) -> bool:
    """Follow the message of a refused run. Returns whether it asks for anything but another attempt."""
    if (run := RUNS.search(message)) is not None:
        Path(run[1]).rename(campaign_round.folder / f"away-{time.time_ns()}")
        return True
    if MARKER.search(message) is not None:
        campaign_round.files.put("engram-store.json", b'{"format": 1}')
        return True
    if HELD.search(message) is not None:
        campaign_round.pass_time()
        return True
    return False


def compare_with_reference(campaign_round: Round) -> None:
    """Compare every table, and each of its Parquet parts, with the undisturbed run."""
    reference = campaign_round.reference
    os.environ |= {name: value for name, value in campaign_round.environment.items() if name == "ENGRAM_RUNS"}
    try:
        store = open_store(campaign_round.store, create=False)
        if (digests := table_digests(store, reference.run)) != reference.tables:
            differing = []
            for name in reference.tables:
                if digests.get(name) != reference.tables[name]:
                    differing.append(name)
            campaign_round.problems.append(f"tables differ: {', '.join(differing)}")
        campaign_round.problems.extend(wrong_parts(store, reference.run))
    except (StoreError, OSError) as error:
        campaign_round.problems.append(f"cannot read what is stored: {error}")


def check_nothing_repeated(
    campaign_round: Round, before: Mapping[str, bytes], earlier: Counter[str], logged: str
) -> None:
    """Check that stored results are unchanged, and that neither the journal nor the toys' log shows a recomputation."""
    destroyed = campaign_round.destroyed | {
        Path(name).stem.partition(".")[0] for name in campaign_round.files.names() if name.startswith("quarantine/")
    }
    undamaged = {key: data for key, data in before.items() if key not in destroyed}
    after = campaign_round.sound_results()
    if changed := [key for key, data in undamaged.items() if after.get(key) != data]:
        campaign_round.problems.append(f"{len(changed)} stored results replaced")
    done = done_keys(campaign_round)
    recomputed = {key for key in undamaged if done[key] > earlier[key]} | {
        key for key, count in done.items() if count > 1
    }
    recomputed -= destroyed | campaign_round.hidden
    if recomputed:
        campaign_round.problems.append(f"{len(recomputed)} results computed again, as the journal says")
    numbers = set()
    for key, data in undamaged.items():
        if key not in campaign_round.hidden:
            for number in part_numbers(data):
                numbers.add(number)
    if campaign_round.subject.name == "toys" and (computed := numbers & set(map(int, logged.split()))):
        campaign_round.problems.append(f"{len(computed)} parts computed again, as they say themselves")


def done_keys(campaign_round: Round) -> Counter[str]:
    """The number of times that each key was computed for this run, as the journal records.

    With a bucket, the driver writes the journal locally and publishes it in the background, so a killed driver has not
    published its last lines. All copies are therefore counted.
    """
    name = f"runs/{campaign_round.reference.run}/events.jsonl"
    copies = [path.read_bytes() for path in campaign_round.folder.glob(f"*/**/{name}")]
    if name in campaign_round.files.names():
        copies.append(campaign_round.files.get(name))
    counts: Counter[str] = Counter()
    for copy in copies:
        counts |= count_done(copy.splitlines())
    return counts


def count_done(lines: Iterable[bytes]) -> Counter[str]:
    done: Counter[str] = Counter()
    for line in lines:
        try:
            event = json.loads(line)
            if event["event"] == "done" and event["worker"] != "orphan":
                done[event["key"]] += 1
        except (ValueError, KeyError, TypeError):
            continue
    return done


def part_numbers(data: bytes) -> list[int]:
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    return table["number"].to_pylist() if "number" in table.schema.names else []


def table_digests(store: Store, run: str) -> dict[str, dict[str, str]]:
    """The digest of the values under each key of each table of a run."""
    roots = Journal(store.folder("runs", run)).roots()
    digests = {}
    for name, keys in roots.items():
        digests[name] = {key: entry.content(values(store.read(key))) for key in keys}
    return digests


def values(table: pa.Table) -> pa.Table:
    """The table without the columns that differ between processes."""
    return table.drop_columns([VOLATILE]) if VOLATILE in table.schema.names else table


def bare_values(table: pa.Table) -> pa.Table:
    return values(table).replace_schema_metadata(None)


def wrong_parts(store: Store, run: str) -> list[str]:
    """The problems of the Parquet parts: each must contain the rows of its results, and together every result once."""
    folder = store.folder("runs", run)
    problems = []
    for name, keys in Journal(folder).roots().items():
        contained_keys: list[str] = []
        for part in sorted((folder / "tables" / name).glob("*.parquet")):
            try:
                table = pq.read_table(part)
            except (OSError, pa.ArrowException) as error:
                problems.append(f"part of {name} cannot be read: {error}")
                continue
            inside = (table.schema.metadata or {}).get(KEYS, b"").decode().split(",")
            contained_keys += inside
            expected = bare_values(flatten_table(pa.concat_tables(map(store.read, inside)), run))
            actual = bare_values(table)  # Parquet calls the elements of lists otherwise
            if actual.column_names != expected.column_names or entry.content(
                actual.cast(expected.schema)
            ) != entry.content(expected):
                problems.append(f"part of {name} differs from its results")
        if sorted(contained_keys) != sorted(set(keys)):
            problems.append(f"the parts of {name} hold {len(contained_keys)} results, not {len(set(keys))}")
    return problems


def run_undisturbed(subject: Subject, folder: Path) -> Reference:
    """Run an audit once, with its page, in a separate folder."""
    shell = Shell(folder)
    folder.mkdir(parents=True)
    shell.env |= {"ENGRAM_STORE": str(folder / "store"), "ENGRAM_REPORT": "yes"}
    run = str(shell.json("run", subject.name, *subject.fields, "--address", "none")["run"])
    return Reference(folder, run, table_digests(open_store(folder / "store"), run))


def seed_of(*parts: object) -> random.Random:
    """A generator whose stream depends only on the arguments."""
    return random.Random(hashlib.sha256(repr(parts).encode()).digest())
