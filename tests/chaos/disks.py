"""Faults of disks: full, read-only or slow; single calls that fail or are torn, and stale caches, as NFS has them."""

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

STALE = 30.0  # seconds for which an NFS client may believe what it has seen
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
# What was done although its reply was lost is refused when the client asks again.
REPLIES = {"link": "EEXIST", "rename": "ENOENT", "unlink": "ENOENT", "mkdir": "EEXIST", "fsync": "EIO", "create": "EIO"}


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, text=True)


def unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True)


def put_store_on(each: Round, disk: Path, backing: Path | None = None) -> None:
    """Let the round's store lie on a disk that is mounted here; its files are really below `backing`."""
    each.store = str(disk / "store")
    each.backing = (backing or disk) / "store"
    each.files = Folder(each.backing)


def fill_disk(each: Round) -> str:
    """A disk with room for a part of the store, which is made larger when the run has paused."""
    disk = each.folder / "disk"
    disk.mkdir()
    files = (path for path in (each.reference.folder / "store").rglob("*") if path.is_file())
    whole = sum(4 + -(-path.stat().st_size // 4096) * 4 for path in files)
    size = max(64, int(whole * each.rng.uniform(0.1, 0.9)))
    mount("-t", "tmpfs", "-o", f"size={size}k", "none", str(disk))
    each.undo.append(lambda: unmount(disk))
    put_store_on(each, disk)
    said = each.end(each.start())
    stored = each.count()
    mount("-o", "remount,size=1g", str(disk))
    return f"{size} of {whole} KiB, {stored} stored, ended with {said.returncode}"


def make_read_only(each: Round) -> str:
    """The disk becomes read-only in the middle, and is mended when the run has paused."""
    disk = each.folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "none", str(disk))
    each.undo.append(lambda: unmount(disk))
    put_store_on(each, disk)
    driver = each.start()
    stored = each.await_share(driver)
    end = time.monotonic() + HANGING
    while driver.poll() is None and time.monotonic() < end:
        with suppress(subprocess.CalledProcessError):  # busy: a file is open for writing
            mount("-o", "remount,ro", str(disk))
            break
    said = each.end(driver)
    mount("-o", "remount,rw", str(disk))
    return f"{stored} stored, ended with {said.returncode}"


def mount_faulty(each: Round, name: str, backing: Path, *faults: dict[str, Any], **options: float) -> Path:
    """A folder where the files of `backing` are seen through these faults."""
    disk = each.folder / name
    disk.mkdir()
    backing.mkdir(exist_ok=True)
    said = json.dumps({"faults": faults, **options})
    command = [sys.executable, "-m", "tests.chaos.faulty_files", str(backing), str(disk), said]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    each.undo += [process.wait, process.kill, lambda: unmount(disk)]
    end = time.monotonic() + HANGING
    while not disk.is_mount() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert disk.is_mount(), "the faulty file system is not mounted"
    return disk


def run_on_faulty(each: Round, fault: dict[str, Any]) -> str:
    """Run on a disk with this fault, which is mended afterwards."""
    backing = each.folder / "backing"
    disk = mount_faulty(each, "disk", backing, fault)
    put_store_on(each, disk, backing)
    said = each.end(each.start())
    unmount(disk)
    mount("--bind", str(backing), str(disk))
    each.undo.append(lambda: unmount(disk))
    return f"ended with {said.returncode}"


def slow_disk(each: Round) -> str:
    calls = each.rng.choice((["write"], ["fsync", "fsyncdir"], ["read", "open"], ["getattr", "readdir"], list(CALLS)))
    fault = {"calls": calls, "share": each.rng.uniform(0.01, 0.1), "delay": each.rng.uniform(0.05, 0.5)}
    return f"{'+'.join(calls)} {fault['share']:.2f} {fault['delay']:.2f} s, " + run_on_faulty(each, fault)


def fail_calls(each: Round) -> str:
    call, error, times = each.rng.choice(CALLS), each.rng.choice(ERRORS), each.rng.choice((1, 1, 3, 50))
    fault = {"calls": [call], "error": error, "after": int(each.rng.expovariate(1 / 60)), "times": times}
    return f"{call} {error} x{times} after {fault['after']}, " + run_on_faulty(each, fault)


def tear_calls(each: Round) -> str:
    """A write stops in the middle, with an error or without one; or a call is done and its reply is lost."""
    fault: dict[str, Any] = {"after": int(each.rng.expovariate(1 / 40)), "times": each.rng.choice((1, 1, 3))}
    if each.rng.random() < 0.5:
        fault |= {"calls": ["write"], "part": each.rng.random()}
        fault |= each.rng.choice(({}, {"error": "EIO"}, {"error": "ENOSPC"}))
    else:
        call = each.rng.choice(sorted(REPLIES))
        fault |= {"calls": [call], "done": True, "error": REPLIES[call]}
    told = f"{fault['calls'][0]} {fault.get('error', 'short')} x{fault['times']} after {fault['after']}"
    return f"{told}, {run_on_faulty(each, fault)}"


def keep_stale_caches(each: Round) -> str:
    """A driver is killed; another on a machine that looked before, and believes for 30 s what it saw, goes on."""
    backing = each.folder / "backing"
    caches = dict.fromkeys(("attr_timeout", "entry_timeout", "negative_timeout"), STALE)
    ours = mount_faulty(each, "ours", backing, **caches)
    theirs = mount_faulty(each, "theirs", backing, **caches)
    put_store_on(each, ours, backing)
    driver = each.start()
    each.await_share(driver, 0.5)
    seen = each.sound_results().keys()
    look_everywhere(each, theirs / "store")
    each.await_share(driver)
    driver.kill()
    driver.wait()
    each.hidden = each.sound_results().keys() - seen  # they may be computed again: nothing shows that they are there
    put_store_on(each, theirs, backing)
    return f"{len(seen)} seen, then {len(each.hidden)} more stored"


def look_everywhere(each: Round, store: Path) -> None:
    """Ask for everything that is there, and for every result that is not."""
    for path in sorted(store.rglob("*")):
        with suppress(OSError):
            path.stat()
    for parts in each.reference.tables.values():
        for key in parts:
            with suppress(OSError):
                (store / "results" / key[:2] / f"{key}.arrow").stat()
