"""Every network and every way, from the command line, including users' networks, which are identified by source."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import Here, Shell

TINY = ("run", "unique_feature", "scale=tiny", "canaries=1", "epochs=1", "examples=100", "--address", "none")

OWN = """
from torch import nn


def small(shape, classes):
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.LazyLinear(classes)
    )


def steady(shape, classes):
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 16), nn.ReLU(), nn.Linear(16, classes))
"""


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    """The same folder."""
    return Here(tmp_path)


@pytest.fixture
def source(tmp_path: Path, engram: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module with a user's networks, on the path of this process and of `engram`'s."""
    networks = tmp_path / "networks"
    networks.mkdir()
    (networks / "hospital.py").write_text(OWN)
    engram.env["PYTHONPATH"] += f":{networks}"
    monkeypatch.syspath_prepend(networks)
    yield networks / "hospital.py"
    for name in ("hospital", "surgery"):
        sys.modules.pop(name, None)


def records(engram: Shell | Here) -> list[dict[str, Any]]:
    """The records of all trained models."""
    from orchestrator.store import open_store

    store = open_store(str(engram.folder / "engram-store"))
    all_records = [dict(store.record(key)) for key in sorted(store.keys())]
    result = []
    for record in all_records:
        if record["task"] in ("classifier.train", "unique_feature.train_twin"):
            result.append(record)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("network", "more"), [("cnn1", "batch_norm=true"), ("resnet18", "data=digits#8x8")])
def test_convolutional_networks_are_audited(here: Here, network: str, more: str) -> None:
    done = here.json(*TINY, f"network={network}", "augmentation=true", "batch=32", more)
    assert done["state"] == "finished"
    assert done["jobs"]["failed"] == 0
    assert {record["way"] for record in records(here)} == {"loop"}


@pytest.mark.slow
def test_way_is_recorded_and_changes_no_key(here: Here) -> None:
    two = [field.replace("canaries=1", "canaries=2") for field in TINY]
    done = here.json(*two, "--way", "stack", "--together", "4")
    stacked = records(here)
    assert [record["way"] for record in stacked] == ["stack"] * 4
    assert {record["stack"] for record in stacked if record["task"] == "classifier.train"} == {2}
    assert all(record["steps_per_second"] > 0 for record in stacked)
    repeated = here.json(*two, "--way", "loop")
    assert done["run"] == repeated["run"]
    assert repeated["jobs"]["done"] == 0
    assert stacked == records(here)


def contents(engram: Shell, store: str = "engram-store") -> dict[str, Any]:
    """The digest of every result by its key."""
    from orchestrator.store import open_store

    opened = open_store(str(engram.folder / store))
    return {key: opened.record(key)["content"] for key in sorted(opened.keys())}


@pytest.mark.slow
def test_run_killed_in_a_stack_continues_bit_identically(engram: Shell, here: Here) -> None:
    smoke = ("run", "unique_feature", "--preset", "smoke", "family.count=20", "--address", "none")
    run = engram.start(*smoke, "--way", "stack", "--together", "2")
    engram.await_results(2, run)  # of six models; two more are in the stack
    run.kill()
    run.wait()
    done = len(engram.results())
    went_on = here.json("resume", "--address", "none", "--way", "stack", "--together", "3")
    assert went_on["state"] == "finished"
    assert went_on["jobs"]["done"] == went_on["jobs"]["planned"] - done
    assert {record["stack"] for record in records(engram)} <= {1, 2, 3}
    assert {record["way"] for record in records(engram)} == {"stack"}
    unbroken = here.json(*smoke, "--way", "loop", "--store", "other")
    assert unbroken["state"] == "finished"
    assert contents(engram, "other") == contents(engram)


def test_unavailable_way_gives_one_line_error(here: Here) -> None:
    done = here(*TINY, "--way", "graph", code=3)
    assert "way is graph; for mlp1 on cpu it must be auto or one of loop, stack" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_users_network_is_identified_by_its_source(engram: Shell, here: Here, source: Path) -> None:
    done = engram.json(*TINY, "network=hospital:steady")
    assert done["state"] == "finished"
    assert {
        record["config"].get("training", record["config"])["network"].partition("@")[0] for record in records(engram)
    } == {"hospital:steady"}
    page = engram.json("report", done["run"])["report"]
    checks = engram.json("verify", page, "--strict", "--store", "engram-store")["checks"]
    assert {check["state"] for check in checks} == {"agrees"}
    source.write_text(source.read_text().replace("16", "24"))
    assert done["run"] != here.json(*TINY, "network=hospital:steady")["run"]
    assert len(records(engram)) == 4
    # A run continues with the network that it was started with.
    assert here.json("resume", done["run"])["state"] == "finished"


def test_unusable_network_gives_one_line_error(here: Here, source: Path) -> None:
    source.rename(source.with_name("surgery.py"))  # this process may have had another `hospital`
    for network, code, message in (
        ("surgery:missing", 3, "surgery has no function missing; it has small, steady"),
        ("clinic:small", 2, "there is no module 'clinic' on Python's path"),
        ("mlp7", 2, "network is 'mlp7'; it must be one of mlp1, cnn1"),
    ):
        done = here(*TINY, f"network={network}", code=code)
        assert message in done.stderr
        assert "Traceback" not in done.stderr
