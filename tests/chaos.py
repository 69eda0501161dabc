"""Kill an audit at random moments, resume it, and compare its scores bit for bit with those of an undisturbed run.

    python -m tests.chaos --rounds 20 --preset quickstart

In every round the driver gets SIGKILL, in every second one a worker before it. What was stored by then must be logged
as stored by the resumed run and computed by nobody again, and 10 s later no process of the killed run may be left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from orchestrator.store.entry import content

Config = tuple[str, ...]  # as it is written behind `engram run unique_feature`
LEFT = 10.0  # seconds after which no process of a killed run may be left


@dataclass(frozen=True)
class Round:
    """What one round saw."""

    planned: int
    at_kill: int  # results stored when the driver was killed
    stored: int  # results stored when the run was resumed: orphans may have finished some
    skipped: int  # jobs that the resumed run logged as stored
    repeated: int  # jobs stored before that were computed again
    left: tuple[str, ...]  # processes of the killed run, 10 s later
    equal: bool  # the scores are those of the undisturbed run


@dataclass(frozen=True)
class Whole:
    """A run to which nothing happens."""

    run: str
    scores: str  # their digest
    planned: int  # jobs


def command(store: Path, config: Config, *more: str) -> list[str]:
    engram = [sys.executable, "-m", "orchestrator"]
    return [*engram, "run", "unique_feature", *config, "--store", str(store), "--json", *more]


def undisturbed(store: Path, config: Config) -> Whole:
    """The run when nothing happens to it, in a process."""
    done = subprocess.run(command(store, config, "--address", "none"), capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    return Whole(report["run"], scores(store, report["run"]), report["jobs"]["planned"])


def scores(store: Path, run: str) -> str:
    (key,) = Journal(store / "runs" / run).roots()["canary_scores"]
    return content(open_store(str(store)).read(key))


def disturbed(store: Path, config: Config, whole: Whole, share: float, worker: bool) -> Round:
    """One round: kill when that share of the results is stored, then resume."""
    mark = f"chaos-{os.getpid()}-{random.random()}"
    driver = subprocess.Popen(
        command(store, config),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CHAOS": mark},
    )
    while driver.poll() is None and stored(store) < share * whole.planned:
        time.sleep(0.02)
    if worker:
        for pid in list(marked(mark, "ray::"))[:1]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(random.random() / 4)
    at_kill = stored(store)
    driver.kill()
    driver.wait()
    killed = time.monotonic()
    before = open_store(str(store)).keys()
    done = subprocess.run(command(store, config), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the resumed run ended with {done.returncode}: {done.stderr[-2000:]}")
    events = list(Journal(store / "runs" / whole.run).events())
    start = max(i for i, event in enumerate(events) if event["event"] == "started")
    again = events[start:]
    skipped = {event["key"] for event in again if event["event"] == "stored"}
    computed = {event["key"] for event in again if event["event"] == "done" and event["worker"] != "orphan"}
    time.sleep(max(0.0, killed + LEFT - time.monotonic()))
    return Round(
        whole.planned,
        at_kill,
        len(before),
        len(skipped & before),
        len(computed & before),
        tuple(map(described, marked(mark))),
        scores(store, whole.run) == whole.scores,
    )


def stored(store: Path) -> int:
    return sum(1 for _ in (store / "results").glob("*/*.arrow"))


def marked(mark: str, title: str = "") -> Iterator[int]:
    """The living processes that carry the mark in their environment, and whose command line starts with the title."""
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                titled = (proc / "cmdline").read_bytes().startswith(title.encode())
                if titled and mark.encode() in (proc / "environ").read_bytes():
                    yield int(proc.name)
            except OSError:
                continue


def described(pid: int) -> str:
    """A process as its number, state, age in seconds and command line."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        age = float(Path("/proc/uptime").read_text().split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"{pid}, gone meanwhile"
    return f"{pid} {fields[0]} {age:.0f} s {title[:200]}"


def shares(rounds: int, rng: random.Random) -> list[float]:
    """Of the jobs, at which to kill: three in four within 20 to 80 %, the others anywhere."""
    return [rng.uniform(0.2, 0.8) if i % 4 else rng.uniform(0.0, 1.0) for i in range(rounds)]


def ordeal(rounds: int, config: Config, seed: int, folder: Path, whole: Whole) -> list[Round]:
    """All rounds, each in a store of its own."""
    rng = random.Random(seed)
    seen = []
    for number, share in enumerate(shares(rounds, rng)):
        store = folder / f"round-{number}"
        seen.append(disturbed(store, config, whole, share, worker=number % 2 == 1))
        print(f"round {number + 1:2d}: {seen[-1]}", flush=True)  # noqa: T201
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engram-chaos-") as folder:
        config = ("--preset", given.preset)
        whole = undisturbed(Path(folder) / "undisturbed", config)
        seen = ordeal(given.rounds, config, given.seed, Path(folder), whole)
    middle = sum(0.2 <= each.at_kill / each.planned <= 0.8 for each in seen)
    bad = [each for each in seen if not each.equal or each.repeated or each.left or each.skipped < each.stored]
    print(f"{len(seen)} rounds, {middle} of them killed with 20 to 80 % stored, {len(bad)} bad")  # noqa: T201
    sys.exit(1 if bad or 2 * middle < len(seen) else 0)


if __name__ == "__main__":
    main()
