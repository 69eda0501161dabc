"""A complete audit, from the command to its tables, in this process and without tracking.

It trains 30 canary and 30 control models of mlp1 on MNIST for 50 epochs each, and scores them on a probe set and a
class. If ENGRAM_DATA has no MNIST, random images of the same shape are used; the speed is the same.
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

TRAIN = 60_000
TEST = 10_000
TINY: dict[str, Any] = {"data": "digits", "canaries": 2, "examples": 300, "epochs": 2, "patience": 2, "probes": 20}
FULL: dict[str, Any] = {"data": "mnist", "canaries": 30, "epochs": 50, "patience": 50}  # no early stopping


def canaries(tiny: bool) -> Iterator[Row]:
    """Yield the seconds of a unique_feature audit, in total and by part."""
    import orchestrator

    settings = TINY if tiny else FULL
    probe = "photos"
    if has_data("cifar10") and not tiny:
        probe = "cifar10"
    with tempfile.TemporaryDirectory() as folder, data_for(settings["data"], Path(folder)) as data:
        start = time.perf_counter()
        report = orchestrator.run(
            "unique_feature",
            store=Path(folder) / "store",
            address="none",
            mlflow="off",
            report=False,
            probe=probe,
            **settings,
        )
        seconds = time.perf_counter() - start
        if report.state != "finished":
            raise RuntimeError(f"the audit {report.state}: {report.failures[:1]} {report.note}")
        store = report.store
        assert store is not None
        records = [store.record(key, check=False) for key in store.keys()]  # noqa: SIM118 - not a mapping
        pairs = report.table("canary_scores").num_rows
    trainings = [record for record in records if "way" in record]
    last_training = trainings[-1]
    subject = f"{settings['canaries']} canaries of mlp1 on {data} x {settings['epochs']} epochs, all in"
    yield Row(subject, f"{seconds:.1f} s, {describe_parts(records, seconds)}", f"probe {probe}", seconds, 40, 15, "s")
    yield Row(
        f"of it {len(trainings)} trainings for {pairs} scores",
        f"{last_training['steps_per_second']:,.0f} model-steps a second",
        f"way {last_training['way']}, {last_training['stack']} in one step, {last_training['together']} in one call, "
        f"on {last_training['device']}",
    )


def describe_parts(records: list[Mapping[str, Any]], total: float) -> str:
    """Describe the seconds spent on training, scoring, tables and the rest."""
    spent: dict[str, float] = defaultdict(float)
    for record in records:
        if "way" in record:
            part = "training"
        elif "score" in record["task"]:
            part = "scoring"
        else:
            part = "tables"
        spent[part] += float(record["seconds"])
    rest = total - sum(spent.values())
    return ", ".join(f"{name} {spent[name]:.1f}" for name in ("training", "scoring", "tables")) + f", rest {rest:.1f}"


def has_data(name: str) -> bool:
    """Whether ENGRAM_DATA has the data set."""
    try:
        find(name)
    except DatasetError:
        return False
    return True


@contextmanager
def data_for(name: str, folder: Path) -> Iterator[str]:
    """Make the data set available inside the context. Yields a description of the images."""
    if has_data(name):
        yield name
        return
    write_random(folder / name)
    previous_folder = os.environ.get("ENGRAM_DATA")
    os.environ["ENGRAM_DATA"] = str(folder)
    try:
        yield f"random images of {name}'s shape"
    finally:
        os.environ.pop("ENGRAM_DATA")
        if previous_folder is not None:
            os.environ["ENGRAM_DATA"] = previous_folder


def write_random(folder: Path, train: int = TRAIN, test: int = TEST) -> None:
    """Write the four IDX files with random images and labels."""
    folder.mkdir(parents=True)
    stream = np.random.default_rng(0)
    for name, count in zip(IDX_FILES, (train, train, test, test), strict=True):
        is_image_file = "idx3" in name
        values = stream.integers(0, 256 if is_image_file else 10, (count, 28, 28) if is_image_file else count, np.uint8)
        (folder / name).write_bytes(idx(values))


def idx(values: NDArray[np.uint8]) -> bytes:
    """Encode unsigned bytes as an IDX file (see `tasks.datasets.benchmark_files`)."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
