"""Copies missing files from one store to another, checking each before and after.

The origin may belong to a third party: links in it are not followed, and names that are not paths are not written.

Files have the same names in every store, so two listings reveal the missing ones, and an interrupted copy continues
where it stopped. Results, checkpoints and tracebacks are never replaced. A run folder is replaced if the target has the
shorter log, and the output of a job if the target has less of it. States of unfinished jobs are not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from orchestrator.errors import Absent, Held, StoreError
from orchestrator.store import Store, entry, lease, mirror
from orchestrator.store.entry import FAILURES, OUTPUTS, RESULTS, STATES, CorruptError, CorruptState
from orchestrator.store.job_files import OUTPUT_FILES
from orchestrator.store.mirror import JOURNEYS, LOCAL_FILES, LOG, RUNS, WRITTEN_ONCE
from orchestrator.store.regular_file import IrregularFile
from orchestrator.store.threads import thread_pool

# Maps a folder of keys to the function that names a key's file in it.
NAMES = {RESULTS: entry.result_name, STATES: entry.state_name, FAILURES: entry.failure_name}
KEYED = (*NAMES, OUTPUTS)


@dataclass
class Transfer:
    """The outcome of a copy: copied files and bytes, existing files, and skipped ones.

    `damaged` lists files that do not match their digests. `irregular` lists links, pipes and names that are not paths,
    each with the reason.
    """

    copied: int = 0
    bytes: int = 0
    present: int = 0
    damaged: list[str] = field(default_factory=list)
    irregular: dict[str, str] = field(default_factory=dict)


def copy_store(origin: Store, target: Store) -> Transfer:
    """Copy the files that the target lacks. Damaged files and irregular entries in the origin are skipped and listed.

    Raises Held if a run to be replaced has a driver in the target, and StoreError or Unwritable if either store fails.
    Files copied before an error are kept.
    """
    if origin.location == target.location:
        raise StoreError(f"{origin.location} is both FROM and TO; give two different stores")
    transfer = Transfer()
    with thread_pool(JOURNEYS, "copy") as pool:
        for folder in (*KEYED, RUNS):
            transfer.irregular |= origin.irregular_files(folder)
        for folder in KEYED:
            origin_files = origin.files(folder)
            target_files = target.files(folder)
            missing_names = []
            for name, size in origin_files.items():
                is_longer = folder == OUTPUTS and size > target_files.get(name, size)
                if (name not in target_files or is_longer) and _is_keyed(name):
                    missing_names.append(name)
            transfer.present += len(origin_files) - len(missing_names)
            _count(transfer, pool.map(partial(_copy, origin, target, replace=folder == OUTPUTS), missing_names))
        for files in _run_files(origin, target, transfer):
            _count(transfer, pool.map(lambda name: _copy(origin, target, name, replace=True), files))
    return transfer


def _count(transfer: Transfer, copied: Iterable[tuple[str, int | IrregularFile | None]]) -> None:
    for name, size in copied:
        if size is None:
            transfer.damaged.append(name)
        elif isinstance(size, IrregularFile):
            transfer.irregular[name] = size.strerror or str(size)
        else:
            transfer.copied += 1
            transfer.bytes += size


def _run_files(origin: Store, target: Store, transfer: Transfer) -> Iterator[list[str]]:
    """Yield the files to copy for each run. `run.json` comes last, because its presence makes the run exist."""
    origin_runs = _by_run(origin.files(RUNS))
    target_runs = _by_run(target.files(RUNS))
    for run, files in origin_runs.items():
        existing_files = target_runs.get(run, {})
        log = f"{RUNS}/{run}/{LOG}"
        is_origin_longer = files.get(log, 0) > existing_files.get(log, 0)
        names = []
        for name in files:
            if name not in existing_files or (is_origin_longer and name.rpartition("/")[2] not in WRITTEN_ONCE):
                names.append(name)
        transfer.present += len(files) - len(names)
        if existing_files and names and (driver := lease.holder(target.folder(RUNS, run))) is not None:
            raise Held(f"{run} has a driver in {target.location}, {driver.name}; copy again when it has ended")
        first = f"{RUNS}/{run}/{mirror.FIRST}"
        run_names = [name for name in names if name.count("/") > 1]
        yield [name for name in run_names if name != first]
        yield [name for name in run_names if name == first]


def _by_run(files: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Group the files by run, without unfinished files and files that concern one machine."""
    runs: dict[str, dict[str, int]] = {}
    for name, size in files.items():
        _, run, *parts = name.split("/")
        if parts and not any(part.startswith(".") for part in (run, *parts)) and parts[-1] not in LOCAL_FILES:
            runs.setdefault(run, {})[name] = size
    return runs


def _copy(origin: Store, target: Store, name: str, replace: bool = False) -> tuple[str, int | IrregularFile | None]:
    """Copy a file and read it back. Returns its name and size.

    Instead of the size, it returns None if the file is damaged, 0 if it was just removed, and the error if it is not a
    regular file inside the store.
    """
    try:
        data = origin.read_file(name)
        _check(name, data)
    except Absent:
        return name, 0
    except (CorruptError, CorruptState, pa.ArrowException):
        return name, None
    except IrregularFile as error:
        return name, error
    if replace:
        target.replace_file(name, data)
    elif not target.create_file(name, data):
        return name, 0  # another writer has just stored it
    if target.read_file(name) != data:
        raise StoreError(f"{target.location}/{name} differs from the bytes written; check the disk or network")
    return name, len(data)


def _check(name: str, data: bytes) -> None:
    """Check a result or checkpoint.

    Raises CorruptError, CorruptState or ArrowException if it does not match its digest.
    """
    folder, _, last = name.partition("/")
    key = last.rpartition("/")[2].partition(".")[0]
    if folder == RESULTS:
        entry.check(memoryview(data))
        entry.record_of(pa.py_buffer(data), key)
    elif folder == STATES:
        entry.unseal_state(key, memoryview(data))


def _is_keyed(name: str) -> bool:
    """Whether a file in a key folder is named after a key and has the correct path."""
    folder, _, last = name.partition("/")
    if folder == OUTPUTS:
        key, _, file = last.partition("/")
        return entry.KEY.fullmatch(key) is not None and file in OUTPUT_FILES
    key = last.rpartition("/")[2].partition(".")[0]
    return entry.KEY.fullmatch(key) is not None and name == NAMES[folder](key)
