"""What a store in a folder costs: system calls of a job, and the seconds of commands on many results.

    python -m bench.stores [--results 100000] [--jobs 2000] [--against CHECKOUT] [--out bench/results/stores.md]

System calls are counted by strace on runs of trivial jobs in one process: those of a run of so many jobs, less those of
one of half as many. The commands are whole processes, with `--json`, on a finished run of so many results, which is
made without waiting for the disk. What counts is the processor's seconds, the median over rounds, since they say the
same on a busy machine. With `--against`, the code of another checkout does the same in turn with this one's.
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
# What is shown of the system calls, and those that count for each.
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
    """The environment in which `python -m orchestrator` runs a checkout's code, with the toys."""
    paths = [str(checkout), str(checkout / TOYS.relative_to(ROOT))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def count_calls(jobs: int, folder: Path, checkout: Path) -> Counter[str]:
    """The system calls of a run of so many trivial jobs, by name."""
    trace = folder / f"{jobs}.trace"
    command = [shutil.which("strace") or "strace", "-f", "-o", str(trace), sys.executable, "-m", "orchestrator", "run"]
    command += ["toys", f"parts={jobs}", "--store", str(folder / str(jobs)), "--address", "none"]
    subprocess.run(command, check=True, capture_output=True, cwd=checkout, env=environment(checkout))
    with trace.open(errors="replace") as lines:
        return Counter(match[1] for line in lines if (match := CALL.match(line)))


def calls_per_job(jobs: int, folder: Path, checkout: Path) -> dict[str, float]:
    folder.mkdir()
    few, many = (count_calls(number, folder, checkout) for number in (jobs // 2, jobs))
    per_job = {name: (many[name] - few[name]) / (jobs - jobs // 2) for name in many}
    kinds = {kind: sum(per_job.pop(name, 0.0) for name in names) for kind, names in KINDS.items()}
    others = {"others": sum(per_job.values())}
    return {**kinds, **others, "all": sum(kinds.values()) + sum(others.values())}


def fill_store(results: int, folder: Path) -> str:
    """A store with a finished run of so many jobs, whose name is returned; nothing of it is synced."""
    import toys

    real, os.fsync = os.fsync, lambda _: None
    try:
        cell = Cell("toys", toys.Config(parts=results))
        return start([cell], open_store(folder), Execution(address="none", mlflow="off", report=False)).run
    finally:
        os.fsync = real


def processor_seconds(words: Sequence[str], checkout: Path) -> float:
    """The processor's seconds, of user and system, that a command of this checkout's code takes."""
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
    """The median seconds of each command, by checkout. Before, one start of this checkout records the run's plan."""
    seconds: dict[str, list[list[float]]] = {command: [[] for _ in checkouts] for command in COMMANDS}
    processor_seconds(["resume", run, "--store", str(folder)], ROOT)
    for command, taken in ROUNDS * [*seconds.items()]:
        words = [run if word == "RUN" else word for word in command.split()]
        for checkout, of_checkout in zip(checkouts, taken, strict=True):
            of_checkout.append(processor_seconds([*words, "--store", str(folder)], checkout))
    return {command: [statistics.median(each) for each in taken] for command, taken in seconds.items()}


def markdown(
    about: Mapping[str, str], calls: Sequence[Mapping[str, float]], results: int, seconds: Mapping[str, Sequence[float]]
) -> str:
    lines = [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", f"| system calls | per no-op job |{' against |' * (len(calls) - 1)}", "|---" * (len(calls) + 1) + "|"]
    lines += [f"| {kind} | {' | '.join(f'{each[kind]:.1f}' for each in calls)} |" for kind in calls[0]]
    versions = len(calls)
    heads = [f"command on {results:,} results", "CPU s", *["against, CPU s", "ratio"] * (versions - 1)]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for command, (now, *before) in seconds.items():
        cells = [f"`engram {command}`", f"{now:.1f}"]
        cells += [cell for each in before for cell in (f"{each:.1f}", f"{each / now:.1f}")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--against", type=Path, help="a checkout of another version, whose commands run in turn")
    parser.add_argument("--folder", type=Path, help="where the store is made, or lies already")
    parser.add_argument("--tiny", action="store_true", help="few jobs: whether it runs, not how much it takes")
    parser.add_argument("--out", type=Path, help="write the result here, as Markdown")
    options = parser.parse_args()
    jobs, results = (20, 20) if options.tiny else (options.jobs, options.results)
    about = setting(jobs, 1, 1)
    os.environ |= {"MLFLOW_TRACKING_URI": "off", "ENGRAM_REPORT": "no", "OMP_NUM_THREADS": "1"}
    add_toys()
    checkouts = [ROOT] if options.against is None else [ROOT, options.against.resolve()]
    with tempfile.TemporaryDirectory(prefix="engram-bench-") as name:
        about["a result's name is durable after"] = names_in(Path(name)).value
        calls = [calls_per_job(jobs, Path(name, str(at)), each) for at, each in enumerate(checkouts)]
        full = options.folder or Path(name) / "full"
        run = fill_store(results, full)
        text = markdown(about, calls, results, time_commands(run, full, checkouts))
    print(text, end="")
    if options.out:
        write_whole(text, options.out)


if __name__ == "__main__":
    main()
