"""One driver per run across machines: who holds a run says so in the object store.

Each driver puts a claim of its own, `claims/RUN/TOKEN.json`, and then lists the run's claims. A listing of S3 has all
that was put before it, so of two drivers the later one sees the other and gives way; two that see each other both do,
and try again after a while of chance. How old a claim is, is judged by the store's clock alone.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from types import TracebackType

from orchestrator import lease
from orchestrator.errors import Held, StoreError
from orchestrator.lease import STALE, Holder
from orchestrator.store.bucket import Away, Bucket, Object

CLAIMS = "claims"
BEAT = 10.0  # seconds between heartbeats
ATTEMPTS = 6  # to claim a run that others are just claiming too
READINGS = 3  # of a claim that is just written anew
PAUSE = 1.0  # seconds between these, times chance and their number
UNCLEAR = (FileNotFoundError, ValueError, TypeError, KeyError)  # a claim that has just gone, or is none


class Claim:
    """A run that is held from `claim` to `release`; a context manager. A daemon thread keeps its heart beating."""

    def __init__(self, bucket: Bucket, run: str, mine: Holder, beat: float) -> None:
        self._bucket, self._run, self._mine, self._beat = bucket, run, mine, beat
        self._lost = False
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._keep, name="claim", daemon=True)
        self._heart.start()

    @property
    def lost(self) -> bool:
        """Whether a driver elsewhere has taken it over (this machine slept, or was cut off): the driver must stop."""
        return self._lost

    def release(self) -> None:
        """Give it back. Harmless when it is lost, and the second time."""
        if self._ended.is_set() or os.getpid() != self._mine.pid:
            return
        self._ended.set()
        self._heart.join()
        with suppress(StoreError):
            self._bucket.delete(_name(self._run, self._mine.token))

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _keep(self) -> None:
        while not self._lost and not self._ended.wait(self._beat):
            with suppress(StoreError):  # a store that is away for a while is no reason to let go
                self._lost = any(held for _, held in _others(self._bucket, self._run, self._mine))
                if not self._lost:
                    _put(self._bucket, self._run, replace(self._mine, beat=time.time()), held=True)


def claim(bucket: Bucket, run: str, beat: float = BEAT) -> Claim:
    """Hold a run against drivers on all machines.

    Held, naming the holder, when a living one has it; a dead one's claim is removed. Unwritable or StoreError where
    the object store cannot be used.
    """
    other: Holder | None = None
    for attempt in range(1, ATTEMPTS + 1):
        mine = lease.me(time.time())
        _put(bucket, run, mine, held=False)
        others = _others(bucket, run, mine)
        if not others:
            _put(bucket, run, mine, held=True)
            return Claim(bucket, run, mine, beat)
        bucket.delete(_name(run, mine.token))
        other = next((holder for holder, held in others if held), None)
        if other is not None:
            break
        other = others[0][0]
        time.sleep(PAUSE * attempt * random.random())
    assert other is not None
    raise Held(lease.refusal(run, other, time.time()))


def living(bucket: Bucket) -> dict[str, Holder]:
    """The drivers of all runs that were heard of lately, by run; this process is none of them."""
    found = {}
    for each in bucket.objects(CLAIMS):
        if time.time() - each.written.timestamp() <= STALE:
            with suppress(*UNCLEAR):
                holder, _ = _read(bucket, each)
                if holder.alive(time.time()) and not (lease.here(holder) and holder.pid == os.getpid()):
                    found[each.name.split("/")[1]] = holder
    return found


def _others(bucket: Bucket, run: str, mine: Holder) -> list[tuple[Holder, bool]]:
    """Living claims of other drivers, and whether each holds the run or is about to. Dead ones are removed."""
    objects = bucket.objects(f"{CLAIMS}/{run}")
    own = _name(run, mine.token)
    now = max((each.written for each in objects if each.name == own), default=None)
    found = []
    for each in objects:
        if each.name == own:
            continue
        if now is not None and now - each.written > timedelta(seconds=STALE):
            bucket.delete(each.name)
            continue
        with suppress(*UNCLEAR):
            holder, held = _read(bucket, each)
            if lease.here(holder) and not holder.alive(time.time()):
                bucket.delete(each.name)
            else:
                found.append((holder, held))
    return found


def _read(bucket: Bucket, claim: Object) -> tuple[Holder, bool]:
    """Who claims, and whether it holds. One that is being written anew is read again: its length may just change."""
    for _ in range(READINGS - 1):
        with suppress(Away, ValueError):
            return _said(bucket, claim)
        time.sleep(PAUSE / 5)
    return _said(bucket, claim)


def _said(bucket: Bucket, claim: Object) -> tuple[Holder, bool]:
    said = json.loads(memoryview(bucket.get(claim.name)).tobytes())
    return Holder(**said["holder"]), bool(said["held"])


def _put(bucket: Bucket, run: str, mine: Holder, held: bool) -> None:
    bucket.put(_name(run, mine.token), json.dumps({"holder": asdict(mine), "held": held}).encode())


def _name(run: str, token: str) -> str:
    return f"{CLAIMS}/{run}/{token}.json"
