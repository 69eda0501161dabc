"""Ensures one driver per run across machines: a run's driver holds a claim in the object store.

A claim is one object, `claims/RUN.json`, that names the driver. It is put on the condition that no claim exists, or
that the existing one still belongs to a dead driver, so exactly one of two competing drivers wins. All claims of a
driver share one heartbeat, `claims/.beats/TOKEN.json`. The age of a claim is judged only by the store's clock.
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

CLAIMS = "claims"
BEATS = ".beats"
BEAT = 10.0  # seconds between heartbeats
ATTEMPTS = 6  # to claim a run that other drivers claim and release at the same time
PAUSE = 0.2  # seconds between attempts, multiplied by a random number and the attempt number
MAX_PUTS = 16  # concurrent puts of claims


class Claim:
    """Runs held from `claim` until `release`. A context manager; a daemon thread sends the heartbeats."""

    def __init__(self, bucket: Bucket, tags: Mapping[str, str], own_holder: Holder, beat: float) -> None:
        self._bucket = bucket
        self._tags = dict(tags)
        self._own_holder = own_holder
        self._beat = beat
        self._lost: tuple[str, Holder] | None = None
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._keep, name="claim", daemon=True)
        self._heart.start()

    @property
    def lost(self) -> tuple[str, Holder] | None:
        """A run that another driver has taken over, and that driver. None if no run was lost.

        This happens after the machine slept or was disconnected. This driver must then stop.
        """
        return self._lost

    def release(self) -> None:
        """Release the runs. Has no effect if they are already lost or released."""
        if self._ended.is_set() or os.getpid() != self._own_holder.pid:
            return
        self._ended.set()
        self._heart.join()
        _give_back(self._bucket, self._tags, self._own_holder)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _keep(self) -> None:
        while self._lost is None and not self._ended.wait(self._beat):
            with suppress(StoreError):  # a temporary store failure must not release the runs
                self._renew()

    def _renew(self) -> None:
        """Send one heartbeat and one listing for all runs. Our missing claims are put again."""
        self._bucket.put(_beat_name(self._own_holder.token), b"{}")
        versions = {claim_object.name: claim_object.tag for claim_object in self._bucket.objects(CLAIMS)}
        for run, tag in self._tags.items():
            if versions.get(_name(run)) == tag:
                continue
            if (created := self._bucket.create(_name(run), _text(self._own_holder))) is not None:
                self._tags[run] = created
                continue
            with suppress(FileNotFoundError):  # it has just been released
                other_holder, claim_object = _read(self._bucket, run)
                if other_holder is not None and other_holder.token != self._own_holder.token:
                    self._lost = (run, other_holder)
                    return
                self._tags[run] = claim_object.tag


def claim(bucket: Bucket, *runs: str, beat: float = BEAT) -> Claim:
    """Claim runs against drivers on all machines.

    Raises Held, with the holder's name, if a living driver has one of the runs. A dead driver's claim is replaced.
    Raises Unwritable or StoreError if the object store cannot be used or does not support conditional puts.
    """
    own_holder = this_process(time.time())
    tags: dict[str, str] = {}

    def hold(run: str) -> None:
        tags[run] = _claim(bucket, run, own_holder)

    try:
        hold(runs[0])
        bucket.prove_conditions(_name(runs[0]), _text(own_holder))
        with ThreadPoolExecutor(MAX_PUTS, "claims") as pool:
            list(pool.map(hold, runs[1:]))
    except BaseException:
        _give_back(bucket, tags, own_holder)
        raise
    return Claim(bucket, tags, own_holder, beat)


def _claim(bucket: Bucket, run: str, own_holder: Holder) -> str:
    """Claim one run. Returns the version of the claim."""
    for attempt in range(1, ATTEMPTS + 1):
        if (tag := bucket.create(_name(run), _text(own_holder))) is not None:
            return tag
        with suppress(FileNotFoundError):  # it has just been released
            other_holder, claim_object = _read(bucket, run)
            if other_holder is not None and other_holder.token == own_holder.token:
                return claim_object.tag
            seconds_silent = _silence(_time(bucket), claim_object, other_holder)
            if other_holder is not None and _is_living(other_holder, seconds_silent):
                raise Held(refusal(run, other_holder, seconds_silent))
            dead = other_holder is not None or seconds_silent > STALE
            if dead and (tag := bucket.replace(_name(run), _text(own_holder), claim_object.tag)) is not None:
                if other_holder is not None:
                    bucket.delete(_beat_name(other_holder.token))
                return tag
        time.sleep(PAUSE * attempt * random.random())
    raise Held(f"other drivers keep claiming {run}; try again in a minute")


def living(bucket: Bucket) -> dict[str, Holder]:
    """Return the drivers with a recent heartbeat by run, except this process."""
    claim_objects = [claim_object for claim_object in bucket.objects(CLAIMS) if _run(claim_object.name)]
    if not claim_objects:
        return {}
    clock = _time(bucket)
    drivers = {}
    for claim_object in claim_objects:
        with suppress(FileNotFoundError):
            holder, claim_object = _read(bucket, _run(claim_object.name))
            if holder is None or (is_local(holder) and holder.pid == os.getpid()):
                continue
            if _is_living(holder, _silence(clock, claim_object, holder)):
                drivers[_run(claim_object.name)] = holder
    return drivers


def _is_living(holder: Holder, seconds_silent: float) -> bool:
    """Whether a claim's driver is alive. A driver without recent heartbeats is at best disconnected."""
    return seconds_silent <= STALE and holder.alive(seconds_silent)


def _silence(clock: tuple[float, dict[str, float]], claim_object: Object, holder: Holder | None) -> float:
    """Return the seconds since the last heartbeat of a claim's driver, or since its claim.

    `clock` comes from `_time`.
    """
    now, beats = clock
    return now - max(claim_object.write_time.timestamp(), beats.get(holder.token, 0.0) if holder is not None else 0.0)


def _time(bucket: Bucket) -> tuple[float, dict[str, float]]:
    """Return the store's time and the time of each driver's last heartbeat.

    If the store cannot be written, our own clock is used.
    """
    probe = os.urandom(16).hex()
    try:
        bucket.put(_beat_name(probe), b"{}")
    except StoreError:
        probe = ""
    beats = {}
    for beat in bucket.objects(f"{CLAIMS}/{BEATS}"):
        beats[_token(beat.name)] = beat.write_time.timestamp()
    if probe:
        with suppress(StoreError):
            bucket.delete(_beat_name(probe))
    return beats.pop(probe, time.time()), beats


def _give_back(bucket: Bucket, tags: Mapping[str, str], own_holder: Holder) -> None:
    """Remove the claims that are still ours.

    While our heartbeat is recent, no driver takes over a claim, so none is replaced between listing and removal.
    """
    with suppress(StoreError):
        own_versions = {_name(run): tag for run, tag in tags.items()}
        own_claims = []
        for claim_object in bucket.objects(CLAIMS):
            if own_versions.get(claim_object.name) == claim_object.tag:
                own_claims.append(claim_object.name)
        bucket.delete(*own_claims, _beat_name(own_holder.token))


def _read(bucket: Bucket, run: str) -> tuple[Holder | None, Object]:
    """Return the driver that a claim names and the claim's object. The driver is None if the claim is unreadable.

    Raises FileNotFoundError if the claim is missing.
    """
    data, claim_object = bucket.fetch(_name(run))
    try:
        return Holder(**json.loads(memoryview(data).tobytes())["holder"]), claim_object
    except (ValueError, TypeError, KeyError):
        return None, claim_object


def _text(holder: Holder) -> bytes:
    return json.dumps({"holder": asdict(holder)}).encode()


def _name(run: str) -> str:
    return f"{CLAIMS}/{run}.json"


def _beat_name(token: str) -> str:
    return f"{CLAIMS}/{BEATS}/{token}.json"


def _run(name: str) -> str:
    """Return the run that an object claims. Returns an empty string if the object is no claim."""
    folder, _, last = name.rpartition("/")
    if folder == CLAIMS:
        return last.removesuffix(".json")
    return ""


def _token(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")
