"""One driver per run across machines: the driver of a run records its claim in the object store.

Each driver puts its own claim, `claims/RUN/TOKEN.json`, and then lists the run's claims. A listing of S3 contains all
objects put before it, so of two drivers the later one sees the other and gives way; if both see each other, both give
way and try again after a random pause. One heart beats for all claims of a driver, in `claims/.beats/TOKEN.json`; the
age of a claim is judged by the store's clock alone.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType

from orchestrator.errors import Held, StoreError
from orchestrator.store.bucket import Away, Bucket, Object
from orchestrator.store.holder import STALE, Holder, is_local, refusal, this_process

CLAIMS, BEATS = "claims", ".beats"
BEAT = 10.0  # seconds between heartbeats
ATTEMPTS = 6  # to claim a run that others are claiming at the same time
READINGS = 3  # of a claim that is being rewritten
PAUSE = 1.0  # seconds between attempts, times a random number and the attempt's number
UNCLEAR = (FileNotFoundError, ValueError, TypeError, KeyError)  # a claim that has just gone, or is not one


class Claim:
    """Runs held from `claim` to `release`; a context manager. A daemon thread sends its heartbeats."""

    def __init__(self, bucket: Bucket, runs: Sequence[str], mine: Holder, beat: float) -> None:
        self._bucket, self._runs, self._mine, self._beat = bucket, runs, mine, beat
        self._lost: tuple[str, Holder] | None = None
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._keep, name="claim", daemon=True)
        self._heart.start()

    @property
    def lost(self) -> tuple[str, Holder] | None:
        """A run that a driver elsewhere has taken over (this machine slept, or was cut off), and its holder; or None.

        The driver must stop then.
        """
        return self._lost

    def release(self) -> None:
        """Release the runs. No effect if they are lost or released already."""
        if self._ended.is_set() or os.getpid() != self._mine.pid:
            return
        self._ended.set()
        self._heart.join()
        _give_back(self._bucket, self._runs, self._mine)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _keep(self) -> None:
        while self._lost is None and not self._ended.wait(self._beat):
            with suppress(StoreError):  # a temporary failure of the store is no reason to release the runs
                self._renew()

    def _renew(self) -> None:
        """One heartbeat and one listing, for any number of runs; those of our claims that have gone are put again."""
        self._bucket.put(_name(BEATS, self._mine.token), b"{}")
        there = self._bucket.objects(CLAIMS)
        names = {claimed.name for claimed in there}
        for run, holder, held in _others(self._bucket, there, self._runs, self._mine):
            if held:
                self._lost = (run, holder)
                return
        for run in self._runs:
            if _name(run, self._mine.token) not in names:
                _put(self._bucket, run, self._mine, held=True)


def claim(bucket: Bucket, *runs: str, beat: float = BEAT) -> Claim:
    """Hold runs against drivers on all machines.

    Raises Held, naming the holder, if a living driver has one of them; a dead driver's claim is removed. Raises
    Unwritable or StoreError if the object store cannot be used.
    """
    mine = this_process(time.time())
    got: list[str] = []
    try:
        for run in runs:
            _claim(bucket, run, mine)
            got.append(run)
    except BaseException:
        _give_back(bucket, got, mine)
        raise
    return Claim(bucket, runs, mine, beat)


def _claim(bucket: Bucket, run: str, mine: Holder) -> None:
    other: Holder | None = None
    for attempt in range(1, ATTEMPTS + 1):
        _put(bucket, run, mine, held=False)
        there = bucket.objects(CLAIMS)
        others = _others(bucket, there, [run], mine)
        if not others:
            _put(bucket, run, mine, held=True)
            return
        bucket.delete(_name(run, mine.token))
        other = next((holder for _, holder, held in others if held), None)
        if other is not None:
            break
        other = others[0][1]
        time.sleep(PAUSE * attempt * random.random())
    assert other is not None
    heard = max(claimed.written.timestamp() for claimed in there if _parts(claimed.name)[1] == other.token)
    raise Held(refusal(run, other, _now(there, mine) - heard))


def living(bucket: Bucket) -> dict[str, Holder]:
    """The drivers with a recent heartbeat, by run; this process excluded."""
    there = bucket.objects(CLAIMS)
    if not there:
        return {}
    drivers = {}
    now, beats = _time(bucket), _beats(there)
    for claimed in there:
        run, token = _parts(claimed.name)
        if run == BEATS:
            continue
        silent = now - max(claimed.written.timestamp(), beats.get(token, 0.0))
        with suppress(*UNCLEAR):
            holder, _ = _read(bucket, claimed)
            if holder.alive(silent) and not (is_local(holder) and holder.pid == os.getpid()):
                drivers[run] = holder
    return drivers


def _others(
    bucket: Bucket, there: Iterable[Object], runs: Sequence[str], mine: Holder
) -> list[tuple[str, Holder, bool]]:
    """Living claims of other drivers to these runs, each with whether it holds the run yet. Remove dead ones."""
    there = list(there)
    wanted = set(runs)
    now, beats = _now(there, mine), _beats(there)
    others = []
    for claimed in there:
        run, token = _parts(claimed.name)
        if run not in wanted or token == mine.token:
            continue
        silent = now - max(claimed.written.timestamp(), beats.get(token, 0.0))
        if silent > STALE:
            _remove(bucket, claimed.name, token)
            continue
        with suppress(*UNCLEAR):
            holder, held = _read(bucket, claimed)
            if holder.alive(silent):
                others.append((run, holder, held))
            else:
                _remove(bucket, claimed.name, token)
    return others


def _beats(there: Iterable[Object]) -> dict[str, float]:
    """The time of each driver's last heartbeat by the store's clock, by its token."""
    parts = ((*_parts(beat.name), beat) for beat in there)
    return {token: beat.written.timestamp() for run, token, beat in parts if run == BEATS}


def _now(there: Iterable[Object], mine: Holder) -> float:
    """The time by the store's clock, from the object that we have just put; 0 if it is not among these."""
    return max((claimed.written.timestamp() for claimed in there if _parts(claimed.name)[1] == mine.token), default=0.0)


def _time(bucket: Bucket) -> float:
    """The time by the store's clock; by ours if nothing can be written there."""
    token = os.urandom(16).hex()
    name = _name(BEATS, token)
    try:
        bucket.put(name, b"{}")
        written = [beat.written for beat in bucket.objects(f"{CLAIMS}/{BEATS}") if beat.name == name]
        bucket.delete(name)
    except StoreError:
        written = []
    return written[0].timestamp() if written else time.time()


def _give_back(bucket: Bucket, runs: Iterable[str], mine: Holder) -> None:
    with suppress(StoreError):
        for run in runs:
            bucket.delete(_name(run, mine.token))
        bucket.delete(_name(BEATS, mine.token))


def _remove(bucket: Bucket, name: str, token: str) -> None:
    bucket.delete(name)
    bucket.delete(_name(BEATS, token))


def _parts(name: str) -> tuple[str, str]:
    """The run and the token in an object's name."""
    _, _, rest = name.partition("/")
    run, _, last = rest.partition("/")
    return run, last.removesuffix(".json")


def _read(bucket: Bucket, claim: Object) -> tuple[Holder, bool]:
    """The claim's driver, and whether it holds the run. Read again while it is rewritten: its length may change."""
    for _ in range(READINGS - 1):
        with suppress(Away, ValueError):
            return _decode_claim(bucket, claim)
        time.sleep(PAUSE / 5)
    return _decode_claim(bucket, claim)


def _decode_claim(bucket: Bucket, claim: Object) -> tuple[Holder, bool]:
    content = json.loads(memoryview(bucket.get(claim.name)).tobytes())
    return Holder(**content["holder"]), bool(content["held"])


def _put(bucket: Bucket, run: str, mine: Holder, held: bool) -> None:
    bucket.put(_name(run, mine.token), json.dumps({"holder": asdict(mine), "held": held}).encode())


def _name(run: str, token: str) -> str:
    return f"{CLAIMS}/{run}/{token}.json"
