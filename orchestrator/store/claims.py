"""One driver per run across machines: the driver of a run holds its claim in the object store.

A claim is one object, `claims/RUN.json`, which names the driver. It is put on the condition that none exists, or that
it still belongs to a dead driver, so that exactly one of two drivers wins. All claims of a driver share one heartbeat,
`claims/.beats/TOKEN.json`; the age of a claim is judged only by the store's clock.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType

from orchestrator.errors import Held, StoreError
from orchestrator.store.bucket import Bucket, Object
from orchestrator.store.holder import STALE, Holder, is_local, refusal, this_process

CLAIMS, BEATS = "claims", ".beats"
BEAT = 10.0  # seconds between heartbeats
ATTEMPTS = 6  # to claim a run that other drivers claim and release at the same time
PAUSE = 0.2  # seconds between attempts, times a random number and the attempt's number
AT_ONCE = 16  # simultaneous puts of claims


class Claim:
    """Runs held from `claim` to `release`; a context manager. A daemon thread sends its heartbeats."""

    def __init__(self, bucket: Bucket, tags: Mapping[str, str], mine: Holder, beat: float) -> None:
        self._bucket, self._tags, self._mine, self._beat = bucket, dict(tags), mine, beat
        self._lost: tuple[str, Holder] | None = None
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._keep, name="claim", daemon=True)
        self._heart.start()

    @property
    def lost(self) -> tuple[str, Holder] | None:
        """A run that another driver has taken over (this machine slept or was disconnected), and its holder; or None.

        This driver must then stop.
        """
        return self._lost

    def release(self) -> None:
        """Release the runs. No effect if they are already lost or released."""
        if self._ended.is_set() or os.getpid() != self._mine.pid:
            return
        self._ended.set()
        self._heart.join()
        _give_back(self._bucket, self._tags, self._mine)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _keep(self) -> None:
        while self._lost is None and not self._ended.wait(self._beat):
            with suppress(StoreError):  # a temporary failure of the store must not release the runs
                self._renew()

    def _renew(self) -> None:
        """Send one heartbeat and one listing for all runs; missing claims of ours are put again."""
        self._bucket.put(_beat_name(self._mine.token), b"{}")
        there = {claimed.name: claimed.tag for claimed in self._bucket.objects(CLAIMS)}
        for run, tag in self._tags.items():
            if there.get(_name(run)) == tag:
                continue
            if (created := self._bucket.create(_name(run), _text(self._mine))) is not None:
                self._tags[run] = created
                continue
            with suppress(FileNotFoundError):  # released this instant
                other, claimed = _read(self._bucket, run)
                if other is not None and other.token != self._mine.token:
                    self._lost = (run, other)
                    return
                self._tags[run] = claimed.tag


def claim(bucket: Bucket, *runs: str, beat: float = BEAT) -> Claim:
    """Claim runs against drivers on all machines.

    Raises Held, with the holder's name, if a living driver has one of the runs; a dead driver's claim is replaced.
    Raises Unwritable or StoreError if the object store cannot be used, or has no conditional puts.
    """
    mine = this_process(time.time())
    tags: dict[str, str] = {}

    def hold(run: str) -> None:
        tags[run] = _claim(bucket, run, mine)

    try:
        hold(runs[0])
        bucket.prove_conditions(_name(runs[0]), _text(mine))
        with ThreadPoolExecutor(AT_ONCE, "claims") as pool:
            list(pool.map(hold, runs[1:]))
    except BaseException:
        _give_back(bucket, tags, mine)
        raise
    return Claim(bucket, tags, mine, beat)


def _claim(bucket: Bucket, run: str, mine: Holder) -> str:
    """Claim one run; return the version of the claim."""
    for attempt in range(1, ATTEMPTS + 1):
        if (tag := bucket.create(_name(run), _text(mine))) is not None:
            return tag
        with suppress(FileNotFoundError):  # it has just been released
            other, claimed = _read(bucket, run)
            if other is not None and other.token == mine.token:
                return claimed.tag
            silent = _silence(_time(bucket), claimed, other)
            if other is not None and _is_living(other, silent):
                raise Held(refusal(run, other, silent))
            dead = other is not None or silent > STALE
            if dead and (tag := bucket.replace(_name(run), _text(mine), claimed.tag)) is not None:
                if other is not None:
                    bucket.delete(_beat_name(other.token))
                return tag
        time.sleep(PAUSE * attempt * random.random())
    raise Held(f"other drivers keep claiming {run}; try again in a minute")


def living(bucket: Bucket) -> dict[str, Holder]:
    """The drivers with a recent heartbeat, by run; this process excluded."""
    there = [claimed for claimed in bucket.objects(CLAIMS) if _run(claimed.name)]
    if not there:
        return {}
    clock, drivers = _time(bucket), {}
    for claimed in there:
        with suppress(FileNotFoundError):
            holder, claimed = _read(bucket, _run(claimed.name))
            if holder is None or (is_local(holder) and holder.pid == os.getpid()):
                continue
            if _is_living(holder, _silence(clock, claimed, holder)):
                drivers[_run(claimed.name)] = holder
    return drivers


def _is_living(holder: Holder, silent: float) -> bool:
    """Whether a claim's driver lives. A driver without recent heartbeats is disconnected, if it runs at all."""
    return silent <= STALE and holder.alive(silent)


def _silence(clock: tuple[float, dict[str, float]], claimed: Object, holder: Holder | None) -> float:
    """Seconds since the last heartbeat of a claim's driver, or since its claim; `clock` is from `_time`."""
    now, beats = clock
    return now - max(claimed.written.timestamp(), beats.get(holder.token, 0.0) if holder is not None else 0.0)


def _time(bucket: Bucket) -> tuple[float, dict[str, float]]:
    """The time by the store's clock (ours if the store cannot be written), and the time of each driver's last beat."""
    probe = os.urandom(16).hex()
    try:
        bucket.put(_beat_name(probe), b"{}")
    except StoreError:
        probe = ""
    beats = {_token(beat.name): beat.written.timestamp() for beat in bucket.objects(f"{CLAIMS}/{BEATS}")}
    if probe:
        with suppress(StoreError):
            bucket.delete(_beat_name(probe))
    return beats.pop(probe, time.time()), beats


def _give_back(bucket: Bucket, tags: Mapping[str, str], mine: Holder) -> None:
    """Remove our claims that are still ours.

    While our heartbeat is recent no driver takes one over, so that none is replaced between listing and removal.
    """
    with suppress(StoreError):
        ours = {_name(run): tag for run, tag in tags.items()}
        there = [claimed.name for claimed in bucket.objects(CLAIMS) if ours.get(claimed.name) == claimed.tag]
        bucket.delete(*there, _beat_name(mine.token))


def _read(bucket: Bucket, run: str) -> tuple[Holder | None, Object]:
    """The driver that a claim names (None if unreadable) and its object. Raises FileNotFoundError if it is missing."""
    data, claimed = bucket.fetch(_name(run))
    try:
        return Holder(**json.loads(memoryview(data).tobytes())["holder"]), claimed
    except (ValueError, TypeError, KeyError):
        return None, claimed


def _text(mine: Holder) -> bytes:
    return json.dumps({"holder": asdict(mine)}).encode()


def _name(run: str) -> str:
    return f"{CLAIMS}/{run}.json"


def _beat_name(token: str) -> str:
    return f"{CLAIMS}/{BEATS}/{token}.json"


def _run(name: str) -> str:
    """The run that an object claims; empty for another object."""
    folder, _, last = name.rpartition("/")
    return last.removesuffix(".json") if folder == CLAIMS else ""


def _token(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")
