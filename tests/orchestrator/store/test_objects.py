"""A store in a bucket reports quickly, and in one line, why it cannot be used."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.errors import Damaged, StoreError, Unwritable
from orchestrator.store import claims, open_store
from orchestrator.store.bucket import Bucket, cause
from orchestrator.store.objects import ObjectStore
from tests.orchestrator.store.test_contract import key, put, table
from tests.support.s3 import BUCKET, Server, deaf

PLACE = f"s3://{BUCKET}/store"


def refusal(act: Callable[[], Any], kind: type[StoreError] = StoreError) -> str:
    """The one line of an error."""
    with pytest.raises(kind) as refused:
        act()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_location_is_normalised(s3: Server) -> None:
    for spelt in (PLACE, PLACE + "/", f"S3://{BUCKET}/store//"):
        assert open_store(spelt).location == PLACE
    for bad in ("s3://", "s3://x", f"s3://{BUCKET}/store?region=eu", f"s3://{BUCKET}//store"):
        assert "is not a location in an object store" in refusal(lambda bad=bad: open_store(bad))


def test_entire_bucket_can_be_a_store(s3: Server) -> None:
    store = open_store(f"s3://{BUCKET}")
    put(store, "a")
    assert {key("a")} == store.keys() == open_store(f"s3://{BUCKET}/", create=False).keys()
    assert f"results/{key('a')[:2]}/{key('a')}.arrow" in s3.names()


def test_result_is_one_object_written_once(s3: Server) -> None:
    store = open_store(PLACE)
    put(store, "a")
    assert s3.names() == ["store/engram-store.json", f"store/results/{key('a')[:2]}/{key('a')}.arrow"]


def test_missing_bucket_is_named(s3: Server) -> None:
    for create in (True, False):
        message = refusal(lambda create=create: open_store("s3://nowhere-at-all/store", create))
        assert "s3://nowhere-at-all/store" in message
    assert "there is no such bucket" in refusal(lambda: open_store("s3://nowhere-at-all/store"))


def test_denied_access_is_reported_with_advice(s3: Server) -> None:
    store = open_store(PLACE)
    with s3.forbidding():
        for act in (lambda: open_store(PLACE), store.keys, lambda: store.read(key("a")), lambda: key("a") in store):
            assert "access is denied; check AWS_ACCESS_KEY_ID" in refusal(act)
        assert "access is denied" in refusal(lambda: store.write_failure(key("a"), "why"), Unwritable)
        assert "access is denied" in refusal(lambda: store.write(key("a"), table("a"), {}), Unwritable)
    put(store, "a")


def test_deleted_store_is_not_empty(s3: Server) -> None:
    store = open_store(PLACE)
    s3.delete("store/engram-store.json")
    assert f"the store {PLACE} no longer exists" in refusal(store.keys)


def test_writes_wait_for_an_unreachable_server(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.bucket.PATIENCE", 1.0)
    store = open_store(PLACE)
    s3.stop()
    try:
        assert f"cannot read {PLACE}" in refusal(lambda: store.read(key("a")))
        assert "it cannot be reached" in refusal(store.keys)
        assert "it cannot be reached" in refusal(lambda: open_store(PLACE))
        assert PLACE in refusal(lambda: store.write(key("a"), table("a"), {}), Unwritable)
    finally:
        s3.start()
    put(store, "a")


def test_silent_server_times_out(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.bucket.REQUEST_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(9)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "it cannot be reached" in refusal(lambda: open_store(PLACE))


def test_wrong_region_is_reported(s3: Server) -> None:
    error = OSError(
        "Error performing GET: Server returned non-2xx status code: 301 Moved Permanently: \n\nDebug source"
    )
    assert cause(error, "s3") == "it is in another region; set AWS_REGION"


def test_large_result_is_stored_like_others(s3: Server) -> None:
    bucket = Bucket(PLACE)
    data = bytes(range(256)) * 50_000
    bucket.put("large", data[:100], data[100:])
    assert data == memoryview(bucket.get("large")).tobytes()


def test_result_takes_one_request_to_write_or_read(s3: Server) -> None:
    store = open_store(PLACE)
    with s3.counting() as counts:
        put(store, "a")
    assert counts == {"PUT": 1}
    for act in (store.read, store.record, lambda name: store.record(name, check=False)):
        with s3.counting() as counts:
            act(key("a"))
        assert counts == {"GET": 1}


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_server_that_ignores_conditions_is_refused(s3: Server, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with deaf(s3, header) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = ObjectStore(PLACE)
        assert "ignores If-None-Match or If-Match" in refusal(lambda: claims.claim(store._bucket, "toys-1"))
    assert s3.names("store/claims") == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"credentials": "[default]\naws_access_key_id=tester\naws_secret_access_key=secret\n"}, ""),
        ({"config": "[profile mine]\nregion=us-east-1\naws_access_key_id=tester\naws_secret_access_key=secret\n"}, ""),
        ({}, "the AWS profile mine cannot be used: The config profile (mine) could not be found"),
    ],
)
def test_credentials_are_read_from_aws_files(
    s3: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, variable in (("credentials", "AWS_SHARED_CREDENTIALS_FILE"), ("config", "AWS_CONFIG_FILE")):
        (tmp_path / name).write_text(files.get(name, ""))
        monkeypatch.setenv(variable, str(tmp_path / name))
    if "credentials" not in files:
        monkeypatch.setenv("AWS_PROFILE", "mine")
    if message:
        assert message in refusal(lambda: open_store(PLACE))
    else:
        put(open_store(PLACE), "a")


class DisturbedBucket(Bucket):
    """A bucket in which an action runs before one of the store's operations. The names of the operations are kept."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.acts: list[str] = []
        self.before: dict[int, Callable[[], object]] = {}  # by number of the act, from 0

    def _act(self, name: str) -> None:
        self.acts.append(name)
        self.before.get(len(self.acts) - 1, lambda: None)()

    def get(self, name: str) -> pa.Buffer:
        self._act(f"get {name}")
        return super().get(name)

    def put(self, name: str, *parts: bytes | memoryview) -> str:
        self._act(f"put {name}")
        return super().put(name, *parts)

    def delete(self, *names: str) -> None:
        self._act(f"delete {names[0]}")
        super().delete(*names)


@pytest.fixture
def damaged(s3: Server) -> tuple[ObjectStore, DisturbedBucket, str, bytes]:
    """A store with one damaged result, its bucket, the result's name there, and its bytes when it was sound."""
    store = ObjectStore(PLACE)
    put(store, "a")
    name = f"results/{key('a')[:2]}/{key('a')}.arrow"
    sound = s3.get(f"store/{name}")
    s3.put(f"store/{name}", sound[:-9])
    bucket = store._bucket = DisturbedBucket(PLACE)
    return store, bucket, name, sound


def test_result_repaired_meanwhile_is_kept(
    s3: Server, damaged: tuple[ObjectStore, DisturbedBucket, str, bytes]
) -> None:
    store, bucket, name, sound = damaged
    bucket.before[1] = lambda: s3.put(f"store/{name}", sound)  # between the reading and the look before it is removed
    with pytest.raises(Damaged):
        store.read(key("a"))
    assert table("a") == store.read(key("a"))
    assert s3.names("store/quarantine") == []


def test_damaged_result_is_copied_to_quarantine_first(
    s3: Server, damaged: tuple[ObjectStore, DisturbedBucket, str, bytes]
) -> None:
    store, bucket, _, sound = damaged
    with pytest.raises(Damaged):
        store.read(key("a"))
    acts = [act.partition("/")[0] for act in bucket.acts]
    assert acts == ["get results", "get results", "put quarantine", "put quarantine", "delete results"]
    [quarantined] = [object_name for object_name in s3.names("store/quarantine") if object_name.endswith(".arrow")]
    assert sound[:-9] == s3.get(quarantined)


# Files of a run


def run_files_in(s3: Server) -> list[str]:
    return s3.names("store/runs") + s3.names("store/claims") + s3.names("store/quarantine")


def test_first_run_file_stays_and_its_claim_ends(s3: Server) -> None:
    store = open_store(PLACE)
    assert store.read_run_file("one", "way.json") is None
    assert store.keep_run_file("one", "way.json", b"first") == b"first"
    assert store.keep_run_file("one", "way.json", b"second") == b"first"
    assert open_store(PLACE).read_run_file("one", "way.json") == b"first"
    assert len(run_files_in(s3)) == 1


def test_rejected_run_file_is_quarantined_with_reason(s3: Server) -> None:
    store = open_store(PLACE)
    store.keep_run_file("one", "way.json", b"odd")
    store.set_aside_run_file("one", "way.json", b"mended by another", "it makes no sense")
    assert store.read_run_file("one", "way.json") == b"odd"
    store.set_aside_run_file("one", "way.json", b"odd", "it makes no sense")
    assert store.read_run_file("one", "way.json") is None
    copy, why = s3.names("store/quarantine")
    assert s3.get(copy) == b"odd"
    assert s3.get(why) == b"runs/one/ways/way.json\nit makes no sense\n"
    assert copy.endswith(".json")
    assert copy.removesuffix(".json") == why.removesuffix(".txt")


# Checks before a write


def test_write_without_read_permission_fails_at_once(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(PLACE)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    with s3.forbidding():
        refusal(lambda: put(store, "a"), Unwritable)


def test_foreign_folder_is_named_by_first_file(s3: Server) -> None:
    s3.put("elsewhere/zebra", b"")
    s3.put("elsewhere/ant", b"")
    assert "(it has ant)" in refusal(lambda: open_store(f"s3://{BUCKET}/elsewhere"))
