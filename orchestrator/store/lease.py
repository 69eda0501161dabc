"""Leases, which ensure that each run has one driver at a time: the holder of its lease.

The lease is a JSON file in the run folder that names the holder. A dead holder on this machine is detected at once, and
one on another machine by its missing heartbeat, so a lease never has to be unlocked by hand. A file lock makes reading,
judging and writing one step. On a file system without locks, the JSON file still turns away other drivers. Only drivers
that start at the same instant may both proceed, and they notice at the next heartbeat.

All runs of a driver share one heartbeat: a file next to their folders that is only touched, which needs no space and no
waiting for the disk. A touched file gets its time from the file system clock. A reader touches another file to get the
current time, so the clocks of two machines are never compared.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from orchestrator.errors import Held, Unreadable
from orchestrator.store import atomic_write
from orchestrator.store.atomic_write import file_lock
from orchestrator.store.holder import STALE, Holder, is_local, refusal, this_process
from orchestrator.store.regular_file import READ_ONLY, IrregularFile, regular_bytes

SHARED_FOLDER = "ways"  # subfolder of a run folder for its small shared files
LEASE = "lease.json"
LOCK = "lease.lock"
ELSEWHERE = "elsewhere.json"  # the driver on another machine, copied from its claim
DRIVERS = ".drivers"  # folder next to the run folders with a file per driver, touched at each heartbeat
CLOCK = "clock"  # file in that folder, touched to get the file system time
BEAT = 5.0  # seconds between heartbeats
Clock = Callable[[], float]
Report = Callable[[str], object]


class Lease:
    """A lease on runs, held from `acquire` until `release`. A context manager.

    If it has a heart, a thread calls `renew`.
    """

    def __init__(self, folders: Sequence[Path], own_holder: Holder, now: Clock | None, beat: float) -> None:
        self.folders = tuple(folders)
        self._own_holder = own_holder
        self._stamp = now
        self._beat = beat
        self._now: Clock = now or time.time
        self._file = _file(folders[0].parent, own_holder)
        self._signs: dict[Path, tuple[int, int] | None] = {folder: _sign(folder) for folder in folders}
        self._last_check = self._now()  # time of the last check that the leases are ours
        self._lost: tuple[str, Holder | None] | None = None
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    @property
    def since(self) -> float:
        """Time of acquisition, in seconds since 1970."""
        return self._own_holder.since

    @property
    def lost(self) -> tuple[str, Holder | None] | None:
        """A run that another driver has taken over, and its current holder (None if there is none).

        This happens after the machine slept or was disconnected. This driver must then stop. None while all runs are
        ours.
        """
        # The heartbeat may be late after a sleep, so check now.
        if self._lost is None and self._now() - self._last_check > 2 * self._beat:
            self.renew()
        return self._lost

    def release(self) -> None:
        """Release the runs. Has no effect if they are already lost or released."""
        if self._ended.is_set() or os.getpid() != self._own_holder.pid:  # a forked child does not hold it
            return
        self._ended.set()
        if self._heart is not None:
            self._heart.join()
        _give_back(self.folders, self._own_holder, self.folders[0].parent)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def start_heart(self) -> None:
        self._heart = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._heart.start()

    def _keep(self) -> None:
        while self._lost is None and not self._ended.wait(self._beat):
            self.renew()

    def renew(self) -> None:
        """Send one heartbeat and check whether another driver has taken over a run."""
        with suppress(OSError):  # a full or temporarily missing disk must not release the runs
            try:
                _touch(self._file, self._stamp)
            except FileNotFoundError:
                _write_driver(self.folders, self._own_holder, self._stamp)
        for folder in self.folders:
            with suppress(OSError):
                if _sign(folder) != self._signs[folder]:
                    self._check_lease_file(folder)
        self._last_check = self._now()

    def _check_lease_file(self, folder: Path) -> None:
        """Handle a lease file that differs from ours because it was removed or replaced by another driver."""
        with file_lock(folder / LOCK):
            present_holder = _read(folder / LEASE)
            if present_holder is not None and not _is_same_driver(present_holder, self._own_holder):
                self._lost = (folder.name, present_holder)
            elif present_holder is None and self._now() - self._last_check > STALE:
                # Another driver took the run over and ended, so the run may have changed.
                self._lost = (folder.name, None)
            elif not self._ended.is_set():
                if present_holder is None:
                    _write(folder, self._own_holder)
                self._signs[folder] = _sign(folder)


def acquire(
    folders: Sequence[Path],
    now: Clock | None = None,
    *,
    beat: float = BEAT,
    heart: bool = True,
    report: Report = str,
) -> Lease:
    """Become the driver of the runs in these folders. They share a parent folder and are created if needed.

    Raises Held immediately if another living driver, in this process or any other, has one of these runs. A dead
    driver's lease is taken over. Raises Unwritable if a lease cannot be written.

    `beat` is the time between heartbeats in seconds. Without a `heart`, the caller must call `renew`. `now` replaces
    the file system clock for heartbeats. If the last heartbeat is in the future, the holder is observed for STALE
    seconds, and a message is passed to `report`.
    """
    runs = folders[0].parent
    own_holder = this_process((now or time.time)())
    acquired: list[Path] = []
    try:
        with atomic_write.writing(runs / DRIVERS):
            (runs / DRIVERS).mkdir(parents=True, exist_ok=True)
            _sweep(runs, now)
            _write_driver(folders, own_holder, now)
        for folder in folders:
            with atomic_write.writing(folder / LEASE):
                folder.mkdir(parents=True, exist_ok=True)
                atomic_write.sweep(folder, 60 * STALE)
                # First check without the lock, because a stopped holder may have kept it.
                dead_holder = _refuse(folder, now, report)
                with file_lock(folder / LOCK):
                    _refuse(folder, now, report, dead_holder)
                    _write(folder, own_holder)
                    acquired.append(folder)
    except BaseException:
        _give_back(acquired, own_holder, runs)
        raise
    lease = Lease(folders, own_holder, now, beat)
    if heart:
        lease.start_heart()
    return lease


def holder(folder: Path, now: Clock | None = None) -> Holder | None:
    """Return the living driver of the run in this folder. Returns None if there is none."""
    for name in (LEASE, ELSEWHERE):
        with suppress(OSError):
            driver = _read(folder / name)
            if driver is not None and driver.alive(_silent(folder / name, driver, now)):
                return driver
    return None


def living_drivers(runs: Path, now: Clock | None = None) -> Iterator[tuple[str, Holder]]:
    """Yield each run with a living driver, and the driver. Reads only the driver files.

    Raises Unreadable if these currently cannot be listed.
    """
    for path in _driver_files(runs):
        driver = _read(path)
        if driver is not None and driver.alive(_silent(path, driver, now)):
            with suppress(OSError, ValueError, KeyError, TypeError):
                yield from ((str(run), driver) for run in json.loads(regular_bytes(path))["runs"])


def _refuse(folder: Path, now: Clock | None, report: Report, dead_holder: Holder | None = None) -> Holder | None:
    """Raise Held if the run has a living driver other than `dead_holder`. Otherwise, return its last holder."""
    path = folder / LEASE
    holder = _read(path)
    if holder is None or holder == dead_holder:
        return holder
    seconds_silent = _silent(path, holder, now)
    if seconds_silent < -STALE:
        # Its clock, or its disk's clock, is or was ahead. It is alive if a new heartbeat is observed.
        seconds_silent = _watch_heartbeat(path, holder, report, seconds_silent)
    if holder.alive(seconds_silent):
        raise Held(refusal(folder.name, holder, seconds_silent))
    return holder


def _give_back(folders: Sequence[Path], own_holder: Holder, runs: Path) -> None:
    for folder in folders:
        with suppress(OSError), file_lock(folder / LOCK):
            if _is_same_driver(_read(folder / LEASE), own_holder):
                (folder / LEASE).unlink()
    with suppress(OSError):
        _file(runs, own_holder).unlink()


def _watch_heartbeat(path: Path, holder: Holder, report: Report, seconds_silent: float) -> float:
    """Watch for a heartbeat for up to STALE seconds by this clock. Returns the seconds without a heartbeat."""
    first_beat = _beat(path, holder)
    start = time.monotonic()
    report(
        f"{path.parent.name}: the last heartbeat of {holder.name} is {-seconds_silent:.0f} s in the future; waiting "
        "for another"
    )
    while time.monotonic() - start <= STALE:
        if _beat(path, holder) != first_beat:
            return 0.0
        time.sleep(BEAT / 10)
    return math.inf


def _is_same_driver(holder: Holder | None, expected_holder: Holder) -> bool:
    return holder is not None and holder.token == expected_holder.token


def _driver_files(runs: Path) -> list[Path]:
    folder = runs / DRIVERS
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(f"cannot read {folder}: {error.strerror}") from error


def _file(runs: Path, holder: Holder) -> Path:
    """Return the path of the driver's file, which is `unknown.json` for an unreadable driver."""
    return runs / DRIVERS / f"{holder.token or 'unknown'}.json"


def _write(folder: Path, holder: Holder) -> None:
    atomic_write.replace(folder, folder / LEASE, _text(asdict(holder)))


def _write_driver(folders: Sequence[Path], holder: Holder, now: Clock | None) -> None:
    runs = folders[0].parent
    path = _file(runs, holder)
    atomic_write.replace(path.parent, path, _text({**asdict(holder), "runs": [folder.name for folder in folders]}))
    if now is not None:
        _touch(path, now)


def _text(fields: dict[str, object]) -> bytes:
    return (json.dumps(fields, indent=1) + "\n").encode()


def _read(path: Path) -> Holder | None:
    """Return the holder named in a file, alive or dead. Returns None if the file does not exist.

    An unreadable file counts as a holder until it is old.
    """
    try:
        write_time = _stat(path).st_mtime
        data = regular_bytes(path)
    except FileNotFoundError:
        return None
    except IrregularFile:
        data = b""
    try:
        fields = json.loads(data)
        holder = Holder(**{name: value for name, value in fields.items() if name != "runs"})
        return replace(holder, pid=int(holder.pid), since=float(holder.since), token=str(holder.token))
    except (ValueError, TypeError, AttributeError):
        return Holder("an unreadable lease", "", "", 0, "", write_time, "")


def _sign(folder: Path) -> tuple[int, int] | None:
    """Return inode and time of a lease file, which change when it is replaced. Returns None if there is no file."""
    try:
        status = _stat(folder / LEASE)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _stat(path: Path) -> os.stat_result:
    """Return the file's current status. The file is opened because a network file system may cache it for a minute."""
    handle = os.open(path, READ_ONLY)
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


def _touch(path: Path, now: Clock | None) -> None:
    os.utime(path, None if now is None else (now(),) * 2)


def _beat(path: Path, holder: Holder) -> float:
    """Return the time of the holder's last heartbeat or, without a heartbeat file, of the last write to its lease."""
    if path.parent.name == DRIVERS:
        runs = path.parent
    else:
        runs = path.parent.parent
    for file in (_file(runs, holder), path):
        with suppress(FileNotFoundError):
            return _stat(file).st_mtime
    return 0.0


def _silent(path: Path, holder: Holder, now: Clock | None) -> float:
    """Return the seconds since the last heartbeat of the holder named in this file.

    Negative if the heartbeat is in the future.
    """
    if is_local(holder):
        return 0.0  # its existence can be checked directly
    beat = _beat(path, holder)
    return (now or (lambda: _time(path)))() - beat


def _time(path: Path) -> float:
    """Return the time by the file system clock, or by this machine's clock if the disk cannot be written."""
    probe = (path.parent if path.parent.name == DRIVERS else path.parent.parent / DRIVERS) / CLOCK
    try:
        try:
            os.utime(probe)
        except FileNotFoundError:
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT, 0o666))
            os.utime(probe)
        return probe.stat().st_mtime
    except OSError:
        return time.time()


def _sweep(runs: Path, now: Clock | None) -> None:
    """Remove the files of dead drivers."""
    atomic_write.sweep(runs / DRIVERS, 60 * STALE)
    for path in _driver_files(runs):
        with suppress(OSError):
            driver = _read(path)
            if driver is not None and not driver.alive(_silent(path, driver, now)):
                path.unlink()
