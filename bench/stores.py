"""Cost of a store in a folder: system calls per job, and seconds per command on many results.

    python -m bench.stores [--results 100000] [--jobs 2000] [--against CHECKOUT] [--out bench/results/stores.md]

strace counts the system calls in a run of no-op jobs in one process, minus those in a run with half as many jobs. Each
command is a separate process, with `--json`, on a finished run with `--results` results, created without syncing. The
table gives median processor seconds over rounds, which are little affected by other processes. With `--against`, the
code of another checkout is measured alternately with this one.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.orchestration import ROOT, TOYS, add_toys, setting
from measurement.files import write_whole
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import open_store
from orchestrator.store.durability import names_in

CALL = re.compile(r"\d+ +(\w+)\(")
# Rows in the table of system calls, and the calls that each row counts.
KINDS = {
    "opened, closed": ("openat", "close"),
    "looked at": ("newfstatat", "stat", "lstat", "fstat", "statx", "lseek"),
    "read, written": ("read", "pread64", "readv", "write", "writev"),
    "linked, removed, made": ("link", "unlink", "mkdir", "rename"),
    "listed": ("getdents64",),
    "synced": ("fsync", "fdatasync"),
    "not of files": ("futex", "getpid", "getrandom", "uname", "mprotect", "madvise", "brk", "ioctl"),
}
COMMANDS = ("status", "results RUN summary", "verify", "gc", "resume RUN")
ROUNDS = 3


def environment(checkout: Path) -> dict[str, str]:
    """Return an environment in which `python -m orchestrator` runs a checkout's code and the `toys` audit."""
    paths = [str(checkout), str(checkout / TOYS.relative_to(ROOT))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def count_calls(jobs: int, folder: Path, checkout: Path) -> Counter[str]:
    """Count the system calls of a run with this number of no-op jobs, by name."""
    trace = folder / f"{jobs}.trace"
    command = [shutil.which("strace") or "strace", "-f", "-o", str(trace), sys.executable, "-m", "orchestrator", "run"]
    command += ["toys", f"parts={jobs}", "--store", str(folder / str(jobs)), "--address", "none"]
    subprocess.run(command, check=True, capture_output=True, cwd=checkout, env=environment(checkout))
    with trace.open(errors="replace") as lines:
        return Counter(match[1] for line in lines if (match := CALL.match(line)))


def calls_per_job(jobs: int, folder: Path, checkout: Path) -> dict[str, float]:
    folder.mkdir()
    few = count_calls(jobs // 2, folder, checkout)
    many = count_calls(jobs, folder, checkout)
    per_job = {name: (many[name] - few[name]) / (jobs - jobs // 2) for name in many}
    kinds = {}
    for kind, names in KINDS.items():
        kinds[kind] = sum(per_job.pop(name, 0.0) for name in names)
    remaining = {"others": sum(per_job.values())}
    return {**kinds, **remaining, "all": sum(kinds.values()) + sum(remaining.values())}


def fill_store(results: int, folder: Path) -> str:
    """Fill a store with a finished run of this many jobs, without syncing. Returns the name of the run."""
    import toys

    real = os.fsync
    os.fsync = lambda _: None
    try:
        cell = Cell("toys", toys.Config(parts=results))
        return start([cell], open_store(folder), Execution(address="none", mlflow="off", report=False)).run
    finally:
        os.fsync = real


def processor_seconds(words: Sequence[str], checkout: Path) -> float:
    """Return the user and system processor seconds of a command run with the code in this checkout."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "orchestrator", *words, "--json"],
        check=True,
        cwd=checkout,
        env=environment(checkout),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_commands(run: str, folder: Path, checkouts: Sequence[Path]) -> dict[str, list[float]]:
    """Return the median seconds of each command by checkout, after one start that records the plan of the run."""
    seconds: dict[str, list[list[float]]] = {command: [[] for _ in checkouts] for command in COMMANDS}
    processor_seconds(["resume", run, "--store", str(folder)], ROOT)
    for command, seconds_by_checkout in ROUNDS * [*seconds.items()]:
        words = [run if word == "RUN" else word for word in command.split()]
        for checkout, of_checkout in zip(checkouts, seconds_by_checkout, strict=True):
            of_checkout.append(processor_seconds([*words, "--store", str(folder)], checkout))
    medians = {}
    for command, seconds_by_checkout in seconds.items():
        medians[command] = [statistics.median(values) for values in seconds_by_checkout]
    return medians


def markdown(
    facts: Mapping[str, str], calls: Sequence[Mapping[str, float]], results: int, seconds: Mapping[str, Sequence[float]]
) -> str:
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", f"| system calls | per no-op job |{' against |' * (len(calls) - 1)}", "|---" * (len(calls) + 1) + "|"]
    for kind in calls[0]:
        lines.append(f"| {kind} | {' | '.join(f'{version[kind]:.1f}' for version in calls)} |")
    versions = len(calls)
    heads = [f"command on {results:,} results", "CPU s", *["against, CPU s", "ratio"] * (versions - 1)]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for command, (now, *before) in seconds.items():
        cells = [f"`engram {command}`", f"{now:.1f}"]
        cells += [cell for version in before for cell in (f"{version:.1f}", f"{version / now:.1f}")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--against", type=Path, help="a checkout of another version, measured in turn")
    parser.add_argument("--folder", type=Path, help="folder of the store, created if it does not exist")
    parser.add_argument("--tiny", action="store_true", help="few jobs, to test the code")
    parser.add_argument("--out", type=Path, help="write the result here, as Markdown")
    options = parser.parse_args()
    if options.tiny:
        jobs = 20
        results = 20
    else:
        jobs = options.jobs
        results = options.results
    facts = setting(jobs, 1, 1)
    os.environ |= {"MLFLOW_TRACKING_URI": "off", "ENGRAM_REPORT": "no", "OMP_NUM_THREADS": "1"}
    add_toys()
    if options.against is None:
        checkouts = [ROOT]
    else:
        checkouts = [ROOT, options.against.resolve()]
    with tempfile.TemporaryDirectory(prefix="engram-bench-") as name:
        facts["a result's name is durable after"] = names_in(Path(name)).value
        calls = []
        for index, checkout in enumerate(checkouts):
            calls.append(calls_per_job(jobs, Path(name, str(index)), checkout))
        full = options.folder or Path(name) / "full"
        run = fill_store(results, full)
        text = markdown(facts, calls, results, time_commands(run, full, checkouts))
    print(text, end="")
    if options.out:
        write_whole(text, options.out)


if __name__ == "__main__":
    main()
