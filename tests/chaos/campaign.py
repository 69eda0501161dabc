"""The campaign: its kinds of faults, the affected audits, and the log of the outcomes."""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "toys"))  # as the tests have it

from tests.chaos import clocks, disks, files, network, processes
from tests.chaos.cluster import RayCluster
from tests.chaos.rounds import Reference, Round, Subject, conclude, run_undisturbed, seed_of
from tests.support.mlflow_server import MlflowServer
from tests.support.s3 import Server

AUDITS = ("unique_feature", "forgetting", "density", "relational", "deja_vu")
LOG = Path(__file__).parents[2] / "bench" / "results" / "chaos.csv"
INSIDE = "ENGRAM_CHAOS_INSIDE"  # set in the campaign's own namespaces
TOYS = ("toys", "toys", "toys", "chains")


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `needs` lists root, programs and modules; `part` is `cluster`, `bucket` or `tracking`."""

    name: str
    bring: Callable[..., str]
    needs: tuple[str, ...] = ()
    part: str = ""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill driver", processes.kill_driver),
        Kind("pause driver", processes.pause_driver, ("root", "unshare", "faketime")),
        Kind("truncate", files.damage(files.truncate)),
        Kind("delete", files.damage(files.delete)),
        Kind("swap", files.damage(files.swap)),
        Kind("flip bits", files.damage(files.flip)),
        Kind("full disk", disks.fill_disk, ("root",)),
        Kind("read-only disk", disks.make_read_only, ("root",)),
        Kind("slow disk", disks.slow_disk, ("root", "mfusepy", "fusermount3")),
        Kind("failing calls", disks.fail_calls, ("root", "mfusepy", "fusermount3")),
        Kind("torn calls", disks.tear_calls, ("root", "mfusepy", "fusermount3")),
        Kind("stale caches", disks.keep_stale_caches, ("root", "mfusepy", "fusermount3")),
        Kind("moved clock", clocks.move_clock, ("root", "unshare", "faketime")),
        Kind("time namespace", clocks.enter_time_namespace, ("root", "unshare")),
        Kind("S3 delayed", network.disturb_requests("delay"), part="bucket"),
        Kind("S3 dropped", network.disturb_requests("drop"), part="bucket"),
        Kind("S3 doubled", network.disturb_requests("double"), part="bucket"),
        Kind("MLflow stopped", network.stop_tracking, part="tracking"),
        Kind("kill driver of own cluster", processes.kill_local_driver, ("root", "unshare")),
        Kind("kill worker", processes.kill_worker, ("root", "unshare", "ip"), "cluster"),
        Kind("kill node", processes.kill_node, ("root", "unshare", "ip"), "cluster"),
        Kind("kill head", processes.kill_head, ("root", "unshare", "ip"), "cluster"),
        Kind("cut node off", network.cut_off, ("root", "unshare", "ip"), "cluster"),
    )
}


@dataclass(frozen=True)
class Entry:
    """A fault in the log. `outcome` is `equal` or lists the problems."""

    seed: int
    number: int
    kind: str
    audit: str
    time: str
    seconds: float
    fault: str
    outcome: str


class Campaign:
    """The audits and parts that rounds share, each created on first use."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self.folder = folder
        self.seed = seed
        self._stack = stack
        self._references: dict[str, Reference] = {}
        (folder / "log").mkdir()

    @cached_property
    def bucket(self) -> Server:
        server = Server()
        self._stack.callback(server.stop)
        os.environ |= server.env  # for reading the store outside the commands
        return server

    @cached_property
    def tracking(self) -> MlflowServer:
        (folder := self.folder / "mlflow").mkdir()
        server = MlflowServer(folder)
        self._stack.callback(server.kill)
        return server

    @cached_property
    def cluster(self) -> RayCluster:
        (folder := self.folder / "ray").mkdir()
        cluster = RayCluster(folder, {})
        self._stack.callback(cluster.close)
        return cluster

    def subject(self, name: str) -> Subject:
        log = self.folder / "log"
        if name == "toys":
            return Subject(name, ("parts=24", "seconds=0.05", f"folder={log}"), log / "computed.log")
        if name == "chains":
            return Subject(name, ("models=4", "epochs=5", "seconds=0.05", f"folder={log}"))
        return Subject(name, ("--preset", "smoke", "scale=tiny"))

    def reference(self, subject: Subject) -> Reference:
        if subject.name not in self._references:
            self._references[subject.name] = run_undisturbed(subject, self.folder / "undisturbed" / subject.name)
        return self._references[subject.name]

    def hold(self, kind: Kind, number: int, audit: str) -> Entry:
        """One round with the fault of this number and kind, in a folder that is removed if there is no problem."""
        subject = self.subject(audit)
        reference = self.reference(subject)
        rng = seed_of(self.seed, kind.name, number)
        campaign_round = Round(subject, reference, rng, self.folder / f"{kind.name.replace(' ', '-').lower()}-{number}")
        parts = [getattr(self, kind.part)] if kind.part else []
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        start = time.monotonic()
        fault = ""
        try:
            if kind.part == "cluster":
                self.cluster.restore()
                campaign_round.address = self.cluster.address
                campaign_round.environment |= self.cluster.environment
            fault = kind.bring(campaign_round, *parts)
            if kind.part == "cluster":
                self.cluster.restore()
                campaign_round.address = self.cluster.address
            conclude(campaign_round)
        except Exception as error:  # the campaign continues; the log reports the problem
            campaign_round.problems.append(f"the round broke off: {type(error).__name__}: {error}")
        finally:
            campaign_round.close()
        outcome = "; ".join(" ".join(problem.split()) for problem in campaign_round.problems) or "equal"
        if outcome == "equal":
            shutil.rmtree(campaign_round.folder, ignore_errors=True)
        seconds = round(time.monotonic() - start, 1)
        return Entry(self.seed, number, kind.name, audit, stamp, seconds, fault, outcome)


def lacking(kind: Kind) -> list[str]:
    """The missing requirements of a kind of fault on this machine."""

    def is_available(need: str) -> bool:
        if need == "root":
            return os.geteuid() == 0 and INSIDE in os.environ
        return shutil.which(need) is not None or find_spec(need) is not None

    return [need for need in kind.needs if not is_available(need)]


def schedule(faults: int, kinds: Sequence[Kind], seed: int, audits: Sequence[str]) -> Iterator[tuple[Kind, int, str]]:
    """The faults in order: the kinds in turn, each with the audits in turn among rounds of the toys."""
    rng = seed_of(seed, "audits")
    for number in range(faults):
        kind = kinds[number % len(kinds)]
        turn = number // len(kinds)
        # One round in five is an audit's, at another turn for every kind.
        real = bool(audits) and (turn + number % len(kinds)) % 5 == 0
        yield kind, turn, audits[(number * 7 + turn) % len(audits)] if real else rng.choice(TOYS)


def hold_campaign(
    faults: int,
    kinds: Sequence[Kind],
    seed: int,
    folder: Path,
    say: Callable[[Entry], object],
    audits: Sequence[str] = AUDITS,
) -> list[Entry]:
    """Inject a number of faults. `say` receives the entry of each."""
    entries = []
    with ExitStack() as stack:
        campaign = Campaign(folder, seed, stack)
        for kind, number, audit in sorted(schedule(faults, kinds, seed, audits), key=lambda row: row[0].part):
            entries.append(campaign.hold(kind, number, audit))
            say(entries[-1])
    return entries


def append_entry(entry: Entry, path: Path) -> None:
    row = asdict(entry)
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def summarise(rows: Sequence[Mapping[str, Any]]) -> str:
    """Summarise the log as Markdown: the number of faults and of problems for each kind."""
    counts, bad = Counter(row["kind"] for row in rows), Counter()  # type: Counter[str], Counter[str]
    audits: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        audits[row["kind"]].add(row["audit"])
        bad[row["kind"]] += row["outcome"] != "equal"
    lines = []
    for kind, count in counts.items():
        lines.append(f"| {kind} | {count} | {bad[kind]} | {', '.join(sorted(audits[kind]))} |")
    total = f"{len(rows)} faults of {len(counts)} kinds, {sum(bad.values())} with another outcome than equal tables"
    return "\n".join([f"{total}.", "", "| kind | faults | not equal | audits |", "|---|---|---|---|", *lines, ""])


def enter_namespaces() -> None:
    """Continue in private namespaces for mounts, processes and network, which end with this process. Needs root."""
    if os.geteuid() or INSIDE in os.environ or not shutil.which("unshare") or not shutil.which("ip"):
        return
    os.environ[INSIDE] = "1"
    script = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up && "$@"; exit $?'
    unshare_options = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [
        "unshare",
        *unshare_options,
        "bash",
        "-c",
        script,
        "bash",
        sys.executable,
        "-m",
        "tests.chaos",
        *sys.argv[1:],
    ]
    os.execvp(command[0], command)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=10 * len(KINDS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--audits", nargs="*", default=AUDITS, help="in addition to the toys")
    parser.add_argument("--log", type=Path, default=LOG, help="a CSV file; its summary is the Markdown file next to it")
    options = parser.parse_args()
    enter_namespaces()
    os.environ |= {"OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": "off"}
    kinds = [KINDS[name] for name in options.kinds]
    for kind in kinds:
        if lacking(kind):
            print(f"left out: {kind.name}, which needs {', '.join(lacking(kind))}", flush=True)  # noqa: T201
    kinds = [kind for kind in kinds if not lacking(kind)]

    def say(entry: Entry) -> None:
        append_entry(entry, options.log)
        print(*asdict(entry).values(), sep=" | ", flush=True)  # noqa: T201

    folder = Path(tempfile.mkdtemp(prefix="engram-chaos-"))
    entries = hold_campaign(options.faults, kinds, options.seed, folder, say, options.audits)
    bad = [entry for entry in entries if entry.outcome != "equal"]
    with options.log.open(newline="") as file:
        options.log.with_suffix(".md").write_text(summarise(list(csv.DictReader(file))))
    print(f"{len(entries)} faults, {len(bad)} bad" + (f", whose folders are in {folder}" if bad else ""))  # noqa: T201
    if not bad:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if bad else 0)
