"""A run in a bucket has one driver at a time, across machines."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from orchestrator.errors import Held
from orchestrator.store import claims
from orchestrator.store.bucket import Bucket
from orchestrator.store.holder import this_process
from tests.support.s3 import BUCKET, Server
from tests.support.waiting import wait_until

RUN = "toys-12345678"


@pytest.fixture
def bucket() -> Bucket:
    """Objects in memory, with the conditional puts and the clock of a server."""
    memory_bucket = Bucket("s3://memory/store")
    memory_bucket._client = MemoryStore()
    return memory_bucket


@pytest.fixture
def served(s3: Server) -> Bucket:
    return Bucket(f"s3://{BUCKET}/store")


NAME = f"claims/{RUN}.json"


OTHER = {"host": "other.cluster", "boot": "another", "pid": 77}
PARENT = {"pid": os.getppid(), "started": ""}  # lives on this machine, whenever it started


def put_claim(bucket: Bucket, **changes: object) -> str:
    """Put a claim of this process, with these changes. Returns the driver's token."""
    holder = replace(this_process(time.time()), **changes)  # type: ignore[arg-type]
    bucket.put(NAME, json.dumps({"holder": asdict(holder)}).encode())
    return holder.token


def put_claim_elsewhere(bucket: Bucket) -> str:
    """Put a claim of a driver on another machine; its token."""
    return put_claim(bucket, **OTHER)


def test_second_driver_is_refused_and_told_the_first(bucket: Bucket) -> None:
    with claims.claim(bucket, RUN):
        with pytest.raises(Held, match=f"{RUN} already has a driver: process {os.getpid()} on"):
            claims.claim(bucket, RUN)
        claims.claim(bucket, "toys-another").release()
    assert bucket.objects("claims") == []
    claims.claim(bucket, RUN).release()


def test_driver_on_another_machine_is_left_alone(bucket: Bucket) -> None:
    put_claim_elsewhere(bucket)
    before = bucket.objects("claims")
    with pytest.raises(Held, match=r"process 77 on other\.cluster, since .*, last heartbeat \d+ s ago"):
        claims.claim(bucket, RUN)
    assert before == bucket.objects("claims")


def stop_clock(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, seconds: float, beats: Mapping[str, float] | None = None
) -> None:
    """Stop the store's clock at `seconds` after the claim, and each driver's last beat at its time after the claim."""
    claim_time = bucket.objects("claims")[-1].write_time.timestamp()
    last = {token: claim_time + after for token, after in (beats or {}).items()}
    monkeypatch.setattr(claims, "_time", lambda _: (claim_time + seconds, last))


@pytest.mark.parametrize(
    ("driver", "beat", "seconds", "is_living"),
    [
        (OTHER, None, 60.0, True),
        (OTHER, None, 60.001, False),
        (OTHER, 5.0, 65.0, True),  # a claim is as fresh as its driver's last heartbeat
        (OTHER, 5.0, 65.001, False),
        (OTHER, -5.0, 60.0, True),  # and no older than itself
        (PARENT, None, 60.0, True),
        (PARENT, None, 60.001, False),  # cut off, if it runs at all
        (PARENT | {"started": "never"}, None, 0.0, False),  # known dead at once
    ],
)
def test_dead_or_silent_driver_is_replaced(
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    driver: dict[str, object],
    beat: float | None,
    seconds: float,
    is_living: bool,
) -> None:
    token = put_claim(bucket, **driver)
    bucket.put(f"claims/.beats/{token}.json", b"{}")
    stop_clock(bucket, monkeypatch, seconds, {} if beat is None else {token: beat})
    assert ([RUN] if is_living else []) == [*claims.living(bucket)]
    if is_living:
        with pytest.raises(Held, match="last heartbeat 60 s ago" if driver is OTHER else f"kill {driver['pid']}"):
            claims.claim(bucket, RUN)
        assert token in bucket.get(NAME).to_pybytes().decode()
    else:
        with claims.claim(bucket, RUN):
            assert token not in bucket.get(NAME).to_pybytes().decode()
            assert not bucket.holds(f"claims/.beats/{token}.json")


def test_only_one_driver_takes_over_a_run(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    put_claim_elsewhere(bucket)
    dead = bucket.objects("claims")[0].tag
    monkeypatch.setattr(claims, "STALE", -1.0)
    with claims.claim(bucket, RUN):
        assert bucket.replace(NAME, b"{}", dead) is None


def test_one_heartbeat_covers_all_runs_of_a_driver(bucket: Bucket) -> None:
    runs = [f"toys-{number}" for number in range(5)]
    with claims.claim(bucket, *runs, beat=0.05) as claim:
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "claim"] == [True]
        wait_until(lambda: len(bucket.objects("claims")) == 6)
        [beat] = bucket.objects("claims/.beats")
        assert beat.name.endswith(".json")
        bucket.delete("claims/toys-3.json")
        wait_until(lambda: len(bucket.objects("claims")) == 6)
        assert not claim.lost
        with pytest.raises(Held, match="toys-3 already has a driver"):
            claims.claim(bucket, "toys-9", "toys-3")
        assert not bucket.holds("claims/toys-9.json")
    assert bucket.objects("claims") == []


def test_age_of_a_claim_follows_the_stores_clock(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    put_claim_elsewhere(bucket)
    now = time.time()
    for away in (-7200.0, 7200.0):
        monkeypatch.setattr(claims.time, "time", lambda away=away: now + away)
        assert list(claims.living(bucket)) == [RUN]
    assert len(bucket.objects("claims")) == 1  # what told the time is gone


def test_driver_is_identified_by_process_not_number(bucket: Bucket) -> None:
    own_claim = this_process(time.time())
    claims_by_run = {
        "toys-mine": own_claim,
        "toys-parent": replace(
            own_claim, pid=os.getppid(), started="", token="1" * 32
        ),  # another process on this machine
        "toys-namesake": replace(own_claim, host="other.cluster", token="2" * 32),  # with our number on another machine
    }
    for run, holder in claims_by_run.items():
        bucket.put(f"claims/{run}.json", json.dumps({"holder": asdict(holder)}).encode())
    assert set(claims.living(bucket)) == {"toys-parent", "toys-namesake"}


def test_one_of_concurrent_drivers_gets_the_run(served: Bucket) -> None:
    got: list[claims.Claim] = []
    refused: list[str] = []
    barrier = threading.Barrier(6)

    def start() -> None:
        barrier.wait()
        try:
            got.append(claims.claim(served, RUN))
        except Held as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert len(refused) == 5
    got[0].release()
    assert served.objects("claims") == []


def test_claim_is_renewed_and_its_loss_noticed(bucket: Bucket) -> None:
    with claims.claim(bucket, RUN, beat=0.1) as claim:
        bucket.delete(NAME)
        wait_until(lambda: bucket.holds(NAME))
        assert not claim.lost
        put_claim_elsewhere(bucket)
        wait_until(lambda: claim.lost)
        # A heart that kept beating would take the run back after the other driver has released it.
        wait_until(lambda: "claim" not in {thread.name for thread in threading.enumerate()})
    assert bucket.holds(NAME)  # the other's


def test_foreign_content_does_not_end_a_claim(bucket: Bucket) -> None:
    with claims.claim(bucket, RUN, beat=0.02) as claim:
        for text in (bucket.get(NAME).to_pybytes(), b"no claim"):  # our own, as of a put that was sent again
            bucket.put(NAME, text)
            beats = bucket.objects("claims/.beats")
            # Two heartbeats later it has been seen.
            wait_until(lambda before=beats: bucket.objects("claims/.beats") != before)
            beats = bucket.objects("claims/.beats")
            wait_until(lambda before=beats: bucket.objects("claims/.beats") != before)
            assert not claim.lost
    assert bucket.objects("claims") == []


def test_claim_with_lost_reply_is_ours(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    own_claim = this_process(time.time())
    bucket.put(NAME, json.dumps({"holder": asdict(own_claim)}).encode())
    monkeypatch.setattr(claims, "this_process", lambda _: own_claim)
    claims.claim(bucket, RUN).release()
    assert bucket.objects("claims") == []


def test_forked_process_releases_nothing(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claims.claim(bucket, RUN)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        claim.release()
    assert bucket.holds(NAME)
    claim.release()
    assert not bucket.holds(NAME)


def test_unreachable_server_ends_no_claim(served: Bucket, s3: Server) -> None:
    with claims.claim(served, RUN, beat=0.1) as claim:
        s3.stop()
        time.sleep(0.5)
        s3.start()
        wait_until(lambda: served.holds(NAME))
        assert not claim.lost


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff"])
def test_invalid_claim_blocks_for_one_minute(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    bucket.put(NAME, text)
    pauses: list[float] = []
    with monkeypatch.context() as at_once:
        at_once.setattr(claims.time, "sleep", pauses.append)
        at_once.setattr(claims.random, "random", lambda: 0.5)
        stop_clock(bucket, at_once, 60.0)
        with pytest.raises(Held, match="keep claiming"):
            claims.claim(bucket, RUN)
        assert claims.living(bucket) == {}
    assert pytest.approx(pauses) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]  # six attempts, ever further apart
    stop_clock(bucket, monkeypatch, 60.001)
    claims.claim(bucket, RUN).release()


def test_claim_uses_few_requests(served: Bucket, s3: Server) -> None:
    with s3.counting() as counts:
        claim = claims.claim(served, *(f"toys-{number}" for number in range(8)))
    assert counts == {"PUT": 8 + 2}
    with s3.counting() as counts:
        claim.release()
        claim.release()
    assert counts == {"LIST": 1, "POST": 1}


def test_drivers_elsewhere_are_known_by_run(bucket: Bucket, tmp_path: Path) -> None:
    put_claim_elsewhere(bucket)
    with claims.claim(bucket, "toys-mine"):
        assert {run: holder.host for run, holder in claims.living(bucket).items()} == {RUN: "other.cluster"}
