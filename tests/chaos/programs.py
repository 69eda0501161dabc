"""Kill drivers, workers and training programs at random during one run of a user's program, and check the outcome.

    python -m tests.chaos.programs [--kills 30] [--models 44] [--address pool|local] [--seed 0]

The program keeps a state and prints metrics. After all kills, the run must finish with the tables of an undisturbed
run, no stored job may have been computed twice, and no process of the program may be left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.store import open_store
from tasks.programs.process import JOB_MARK
from tests.chaos.rounds import count_done, table_digests

STEPS = 8
PROGRAM = f"""\
n=$(cat "$ENGRAM_STATE/n" 2>/dev/null || echo 0)
while [ "$n" -lt {STEPS} ]; do
    sleep 0.1
    n=$((n + 1))
    echo "$n" > "$ENGRAM_STATE/n.new" && mv "$ENGRAM_STATE/n.new" "$ENGRAM_STATE/n"
    echo "engram: step=$n loss=$n"
done
awk 'BEGIN {{print "loss"}} NR == FNR {{m[$1] = 1; next}} {{print ($1 in m) ? 0.1 : 1 + ($1 % 7) / 10}}' "$1" "$2" \\
    > "$ENGRAM_OUT/scores.csv"
"""
VICTIMS = ("driver", "worker", "program")
QUIET = 15.0  # seconds after which no program of a killed driver may be left
HANGING = 600.0


class Campaign:
    """One run of the program in a folder, which is started again after each kill of its driver."""

    def __init__(self, folder: Path, models: int, address: str) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.mark = f"{folder.name}-{os.getpid()}"
        self.words = [
            *(sys.executable, "-m", "orchestrator", "run", "membership", "records=60", f"models={models}"),
            "training.command=sh train.sh {rows:txt} {ask:txt}",
            *("--store", str(self.store), "--address", address, "--no-report", "--mlflow", "off"),
        ]
        folder.mkdir()
        (folder / "train.sh").write_text(PROGRAM)

    def start(self) -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": str(root), "CHAOS": self.mark}
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(self.words, cwd=self.folder, env=environment, stdout=said, stderr=said)

    def processes(self, variable: str = "CHAOS") -> Iterator[int]:
        """Yield the processes of this campaign that have the variable in their environment."""
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environment = (path / "environ").read_bytes().split(b"\0")
                names = {entry.partition(b"=")[0] for entry in environment}
                if f"CHAOS={self.mark}".encode() in environment and variable.encode() in names:
                    yield int(path.name)

    def tables(self) -> dict[str, dict[str, str]]:
        store = open_store(str(self.store), create=False)
        (run,) = [path.name for path in (self.store / "runs").iterdir() if (path / "plan.json").exists()]
        return table_digests(store, run)

    def repeated(self) -> list[str]:
        """Return the keys that the journal says were computed more than once."""
        counts: Counter[str] = Counter()
        for path in (self.store / "runs").glob("*/events.jsonl"):
            counts.update(count_done(path.read_bytes().splitlines()))
        return [key for key, count in counts.items() if count > 1]


def kill(campaign: Campaign, driver: subprocess.Popen[bytes], victim: str, rng: random.Random) -> bool:
    """Kill one process of this kind. Returns whether there was one."""
    programs = set(campaign.processes(JOB_MARK))
    match victim:
        case "driver":
            candidates = [driver.pid]
        case "program":
            candidates = sorted(programs)
        case _:  # parents of programs
            candidates = sorted({_parent(pid) for pid in programs} - programs - {0, 1, driver.pid})
    if not candidates:
        return False
    with suppress(OSError):
        os.kill(rng.choice(candidates), signal.SIGKILL)
    return True


def _parent(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def disturb(campaign: Campaign, kills: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Kill processes until the run has finished or all kills are spent, then let it finish."""
    done: Counter[str] = Counter()
    problems = []
    driver = campaign.start()
    deadline = time.monotonic() + HANGING
    while time.monotonic() < deadline:
        if driver.poll() is not None:
            if driver.returncode == 0:
                break
            driver = campaign.start()
        _await_program(campaign, driver)
        time.sleep(rng.uniform(0.0, 1.5))
        if done.total() < kills and driver.poll() is None:
            victim = rng.choice(VICTIMS)
            if kill(campaign, driver, victim, rng):
                done[victim] += 1
                if victim == "driver":
                    driver.wait()
                    left = _await_none(campaign)
                    if left:
                        problems.append(f"{left} processes of the program are left after {QUIET:.0f} s")
    else:
        problems.append("the run does not end")
    return done, problems


def _await_program(campaign: Campaign, driver: subprocess.Popen[bytes]) -> None:
    """Wait until a program runs or the driver has ended."""
    while driver.poll() is None and not any(campaign.processes(JOB_MARK)):
        time.sleep(0.05)


def _await_none(campaign: Campaign) -> int:
    limit = time.monotonic() + QUIET
    while any(campaign.processes(JOB_MARK)) and time.monotonic() < limit:
        time.sleep(0.1)
    return len(list(campaign.processes(JOB_MARK)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--models", type=int, default=44)
    parser.add_argument("--address", default="pool")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="engram-chaos-") as folder:
        quiet = Campaign(Path(folder) / "quiet", options.models, options.address)
        code = quiet.start().wait()
        disturbed = Campaign(Path(folder) / "disturbed", options.models, options.address)
        start = time.monotonic()
        done, problems = disturb(disturbed, options.kills, random.Random(options.seed))
        if code:
            problems.append("the undisturbed run failed")
        if disturbed.tables() != quiet.tables():
            problems.append("tables differ")
        if repeated := disturbed.repeated():
            problems.append(f"{len(repeated)} stored jobs were computed twice")
        if left := _await_none(disturbed):
            problems.append(f"{left} processes of the program are left at the end")
        kinds = ", ".join(f"{count} {victim}s" for victim, count in sorted(done.items()))
        outcome = "; ".join(problems) or "equal"
        sys.stdout.write(f"{options.address}: killed {kinds} in {time.monotonic() - start:.0f} s; {outcome}\n")
        if problems:
            sys.stdout.write((disturbed.folder / "said").read_text()[-3000:])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
