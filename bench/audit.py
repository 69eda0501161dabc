"""A whole audit, from the command to its tables, in this process and without tracking.

30 canaries of mlp1 on MNIST, each with its twin, 50 epochs: 60 trainings, scored on a probe set and a class. Where
ENGRAM_DATA has no MNIST, random images of its shape lie in a temporary folder in its place, and the speed is the same.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measuring import Row
from tasks.datasets.benchmark_files import IDX_FILES
from tasks.datasets.dataset import DatasetError
from tasks.datasets.places import find

TRAIN, TEST = 60_000, 10_000
TINY: dict[str, Any] = {"data": "digits", "canaries": 2, "examples": 300, "epochs": 2, "patience": 2, "probes": 20}
FULL: dict[str, Any] = {"data": "mnist", "canaries": 30, "epochs": 50, "patience": 50}  # nobody stops early


def canaries(tiny: bool) -> Iterator[Row]:
    """Seconds of the audit of unique features, all in, and what they went into."""
    import orchestrator

    chosen = TINY if tiny else FULL
    probe = "cifar10" if there("cifar10") and not tiny else "photos"
    with tempfile.TemporaryDirectory() as folder, data_for(chosen["data"], Path(folder)) as data:
        began = time.perf_counter()
        report = orchestrator.run(
            "unique_feature",
            store=Path(folder) / "store",
            address="none",
            mlflow="off",
            report=False,
            probe=probe,
            **chosen,
        )
        seconds = time.perf_counter() - began
        if report.state != "finished":
            raise RuntimeError(f"the audit {report.state}: {report.failures[:1]} {report.note}")
        store = report.store
        assert store is not None
        records = [store.record(key, check=False) for key in store.keys()]  # noqa: SIM118 - not a mapping
        pairs = report.table("canary_scores").num_rows
    trainings = [record for record in records if "way" in record]
    told = trainings[-1]
    what = f"{chosen['canaries']} canaries of mlp1 on {data} x {chosen['epochs']} epochs, all in"
    yield Row(what, f"{seconds:.1f} s, {parts(records, seconds)}", f"probe {probe}", seconds, 40, 15, "s")
    yield Row(
        f"of it {len(trainings)} trainings for {pairs} scores",
        f"{told['steps_per_second']:,.0f} model-steps a second",
        f"way {told['way']}, {told['stack']} in one step, {told['together']} in one call, on {told['device']}",
    )


def parts(records: list[Mapping[str, Any]], whole: float) -> str:
    """Where the seconds went, in words."""
    spent: dict[str, float] = defaultdict(float)
    for record in records:
        spent["training" if "way" in record else "scoring" if "score" in record["task"] else "tables"] += float(
            record["seconds"]
        )
    rest = whole - sum(spent.values())
    return ", ".join(f"{name} {spent[name]:.1f}" for name in ("training", "scoring", "tables")) + f", rest {rest:.1f}"


def there(name: str) -> bool:
    """Whether ENGRAM_DATA has the data set."""
    try:
        find(name)
    except DatasetError:
        return False
    return True


@contextmanager
def data_for(name: str, folder: Path) -> Iterator[str]:
    """Inside, the data set is there. What it really is, in words."""
    if there(name):
        yield name
        return
    write_random(folder / name)
    before = os.environ.get("ENGRAM_DATA")
    os.environ["ENGRAM_DATA"] = str(folder)
    try:
        yield f"random images of {name}'s shape"
    finally:
        os.environ.pop("ENGRAM_DATA")
        if before is not None:
            os.environ["ENGRAM_DATA"] = before


def write_random(folder: Path, train: int = TRAIN, test: int = TEST) -> None:
    """The four IDX files, of random images."""
    folder.mkdir(parents=True)
    stream = np.random.default_rng(0)
    for name, count in zip(IDX_FILES, (train, train, test, test), strict=True):
        pictures = "idx3" in name
        values = stream.integers(0, 256 if pictures else 10, (count, 28, 28) if pictures else count, np.uint8)
        (folder / name).write_bytes(idx(values))


def idx(values: NDArray[np.uint8]) -> bytes:
    """An IDX file of unsigned bytes: see `tasks.datasets.benchmark_files`."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
