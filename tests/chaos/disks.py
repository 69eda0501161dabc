"""Faults of disks: full, read-only or slow disks, failing or torn calls, and stale caches as on NFS."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos.rounds import HANGING, Folder, Round
from tests.support.forks import ROOT

STALE = 30.0  # seconds for which an NFS client may use cached entries
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "ESTALE", "EROFS", "ETIMEDOUT")
CALLS = (
    "write",
    "fsync",
    "create",
    "open",
    "read",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "readdir",
    "fsyncdir",
    "flush",
)
# A call that was done but whose reply was lost fails when the client repeats it.
REPLIES = {"link": "EEXIST", "rename": "ENOENT", "unlink": "ENOENT", "mkdir": "EEXIST", "fsync": "EIO", "create": "EIO"}


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, text=True)


def unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True)


def put_store_on(campaign_round: Round, disk: Path, backing: Path | None = None) -> None:
    """Place the round's store on a mounted disk. Its files are physically below `backing`."""
    campaign_round.store = str(disk / "store")
    campaign_round.backing = (backing or disk) / "store"
    campaign_round.files = Folder(campaign_round.backing)


def fill_disk(campaign_round: Round) -> str:
    """A disk with room for a part of the store. It is enlarged once the run has paused."""
    disk = campaign_round.folder / "disk"
    disk.mkdir()
    files = (path for path in (campaign_round.reference.folder / "store").rglob("*") if path.is_file())
    total_size = sum(4 + -(-path.stat().st_size // 4096) * 4 for path in files)
    size = max(64, int(total_size * campaign_round.rng.uniform(0.1, 0.9)))
    mount("-t", "tmpfs", "-o", f"size={size}k", "none", str(disk))
    campaign_round.undo.append(lambda: unmount(disk))
    put_store_on(campaign_round, disk)
    driver_result = campaign_round.end(campaign_round.start())
    stored_count = campaign_round.count()
    mount("-o", "remount,size=1g", str(disk))
    return f"{size} of {total_size} KiB, {stored_count} stored, ended with {driver_result.returncode}"


def make_read_only(campaign_round: Round) -> str:
    """The disk becomes read-only during the run and writable once the run has paused."""
    disk = campaign_round.folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "none", str(disk))
    campaign_round.undo.append(lambda: unmount(disk))
    put_store_on(campaign_round, disk)
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver)
    end = time.monotonic() + HANGING
    while driver.poll() is None and time.monotonic() < end:
        with suppress(subprocess.CalledProcessError):  # busy: a file is open for writing
            mount("-o", "remount,ro", str(disk))
            break
    driver_result = campaign_round.end(driver)
    mount("-o", "remount,rw", str(disk))
    return f"{stored_count} stored, ended with {driver_result.returncode}"


def mount_faulty(campaign_round: Round, name: str, backing: Path, *faults: dict[str, Any], **options: float) -> Path:
    """Mount a folder that shows the files of `backing` with these faults."""
    disk = campaign_round.folder / name
    disk.mkdir()
    backing.mkdir(exist_ok=True)
    driver_result = json.dumps({"faults": faults, **options})
    command = [sys.executable, "-m", "tests.chaos.faulty_files", str(backing), str(disk), driver_result]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    campaign_round.undo += [process.wait, process.kill, lambda: unmount(disk)]
    end = time.monotonic() + HANGING
    while not disk.is_mount() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert disk.is_mount(), "the faulty file system is not mounted"
    return disk


def run_on_faulty(campaign_round: Round, fault: dict[str, Any]) -> str:
    """Run on a disk with a fault, which is removed afterwards."""
    backing = campaign_round.folder / "backing"
    disk = mount_faulty(campaign_round, "disk", backing, fault)
    put_store_on(campaign_round, disk, backing)
    driver_result = campaign_round.end(campaign_round.start())
    unmount(disk)
    mount("--bind", str(backing), str(disk))
    campaign_round.undo.append(lambda: unmount(disk))
    return f"ended with {driver_result.returncode}"


def slow_disk(campaign_round: Round) -> str:
    calls = campaign_round.rng.choice(
        (["write"], ["fsync", "fsyncdir"], ["read", "open"], ["getattr", "readdir"], list(CALLS))
    )
    fault = {
        "calls": calls,
        "share": campaign_round.rng.uniform(0.01, 0.1),
        "delay": campaign_round.rng.uniform(0.05, 0.5),
    }
    return f"{'+'.join(calls)} {fault['share']:.2f} {fault['delay']:.2f} s, " + run_on_faulty(campaign_round, fault)


def fail_calls(campaign_round: Round) -> str:
    call = campaign_round.rng.choice(CALLS)
    error = campaign_round.rng.choice(ERRORS)
    times = campaign_round.rng.choice((1, 1, 3, 50))
    fault = {"calls": [call], "error": error, "after": int(campaign_round.rng.expovariate(1 / 60)), "times": times}
    return f"{call} {error} x{times} after {fault['after']}, " + run_on_faulty(campaign_round, fault)


def tear_calls(campaign_round: Round) -> str:
    """A write stops in the middle, with or without an error; or a call is done but its reply is lost."""
    fault: dict[str, Any] = {
        "after": int(campaign_round.rng.expovariate(1 / 40)),
        "times": campaign_round.rng.choice((1, 1, 3)),
    }
    if campaign_round.rng.random() < 0.5:
        fault |= {"calls": ["write"], "part": campaign_round.rng.random()}
        fault |= campaign_round.rng.choice(({}, {"error": "EIO"}, {"error": "ENOSPC"}))
    else:
        call = campaign_round.rng.choice(sorted(REPLIES))
        fault |= {"calls": [call], "done": True, "error": REPLIES[call]}
    description = f"{fault['calls'][0]} {fault.get('error', 'short')} x{fault['times']} after {fault['after']}"
    return f"{description}, {run_on_faulty(campaign_round, fault)}"


def keep_stale_caches(campaign_round: Round) -> str:
    """A driver is killed. Another one continues on a machine with a cache of 30 s, filled before."""
    backing = campaign_round.folder / "backing"
    caches = dict.fromkeys(("attr_timeout", "entry_timeout", "negative_timeout"), STALE)
    first_mount = mount_faulty(campaign_round, "ours", backing, **caches)
    second_mount = mount_faulty(campaign_round, "theirs", backing, **caches)
    put_store_on(campaign_round, first_mount, backing)
    driver = campaign_round.start()
    campaign_round.await_share(driver, 0.5)
    seen_keys = campaign_round.sound_results().keys()
    look_everywhere(campaign_round, second_mount / "store")
    campaign_round.await_share(driver)
    driver.kill()
    driver.wait()
    campaign_round.hidden = (
        campaign_round.sound_results().keys() - seen_keys
    )  # they may be computed again: nothing shows that they are there
    put_store_on(campaign_round, second_mount, backing)
    return f"{len(seen_keys)} seen, then {len(campaign_round.hidden)} more stored"


def look_everywhere(campaign_round: Round, store: Path) -> None:
    """Query every existing entry and every missing result."""
    for path in sorted(store.rglob("*")):
        with suppress(OSError):
            path.stat()
    for parts in campaign_round.reference.tables.values():
        for key in parts:
            with suppress(OSError):
                (store / "results" / key[:2] / f"{key}.arrow").stat()
