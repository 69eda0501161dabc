"""A store in an Azure container: exactly one of several writers wins, and a run continues on another machine."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import toys

from orchestrator.errors import Held, StoreError
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import WriteEffect, claims, open_store
from orchestrator.store.bucket import Bucket
from tests.orchestrator.store.test_contract import key, put, table
from tests.support.azurite import CONTAINER, Azurite

PLACE = f"az://{CONTAINER}/store"
WRITERS = 8


def test_one_of_concurrent_creators_wins(azure: Azurite) -> None:
    bucket = Bucket(PLACE)
    with ThreadPoolExecutor(WRITERS) as pool:
        tags = list(pool.map(lambda number: bucket.create("one", b"%d" % number), range(WRITERS)))
    (winner,) = [number for number, tag in enumerate(tags) if tag is not None]
    assert b"%d" % winner == bucket.get("one").to_pybytes()
    assert tags[winner] == bucket.fetch("one")[1].tag


def test_one_of_concurrent_replacers_wins(azure: Azurite) -> None:
    bucket = Bucket(PLACE)
    bucket.put("one", b"first")
    (listed_object,) = bucket.objects("")  # a listing tells the version, too
    assert listed_object.tag == bucket.fetch("one")[1].tag
    with ThreadPoolExecutor(WRITERS) as pool:
        tags = list(pool.map(lambda number: bucket.replace("one", b"%d" % number, listed_object.tag), range(WRITERS)))
    (winner,) = [number for number, tag in enumerate(tags) if tag is not None]
    assert b"%d" % winner == bucket.get("one").to_pybytes()
    assert bucket.replace("none", b"", listed_object.tag) is None


def test_one_of_concurrent_result_writers_wins(azure: Azurite) -> None:
    store = open_store(PLACE)
    with ThreadPoolExecutor(WRITERS) as pool:
        effects = list(pool.map(lambda number: store.write(key("a"), table(number), {}), range(WRITERS)))
    assert Counter({WriteEffect.NEW: 1, WriteEffect.CONFLICT: WRITERS - 1}) == Counter(effects)
    assert table(effects.index(WriteEffect.NEW)) == store.read(key("a"))


def test_one_of_concurrent_drivers_gets_the_run(azure: Azurite) -> None:
    bucket = Bucket(PLACE)

    got: list[claims.Claim] = []

    def claim(_: int) -> None:
        with suppress(Held):
            got.append(claims.claim(bucket, "toys-12345678"))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(claim, range(WRITERS)))
    (claimed,) = got
    claimed.release()
    assert bucket.objects("claims") == []


def test_deleting_missing_objects_is_allowed(azure: Azurite) -> None:
    bucket = Bucket(PLACE)
    for name in ("a", "b"):
        bucket.put(name, b"")
    bucket.delete("none", "a", "none either", "b")
    assert azure.names() == []


def test_run_continues_from_the_container(azure: Azurite, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    here = Execution(address="none", mlflow="off", report=False)
    cell = Cell("toys", toys.Config(parts=3))
    first = start([cell], open_store(PLACE), here)
    assert first.state == "finished"
    assert first.jobs["done"] == 4
    monkeypatch.setenv("ENGRAM_RUNS", f"{tmp_path}/another machine")
    azure.delete(f"store/results/{first.roots['parts'][0][:2]}/{first.roots['parts'][0]}.arrow")
    resumed = start([cell], open_store(PLACE), here)
    assert resumed.state == "finished"
    assert resumed.jobs["done"] == 1
    assert resumed.summary == first.summary


def test_container_errors_are_one_line(azure: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    put(open_store(PLACE), "a")
    with pytest.raises(StoreError, match="there is no such container"):
        open_store("az://nowhere-at-all/store")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    with pytest.raises(StoreError, match="access is denied; check AZURE_STORAGE_ACCOUNT_KEY"):
        open_store(PLACE)


def test_account_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StoreError, match=r"cannot use az://results: .*; set AZURE_STORAGE_ACCOUNT_NAME"):
        open_store(PLACE)
