"""Data sets in the cache of `datasets`: names, revisions and damage. test_routes.py tests what all routes share."""

from __future__ import annotations

import json
import random
import shutil
import sys
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.contract.extras import DATASETS, Extra
from tasks.datasets import hub_cache
from tasks.datasets.catalog import image_names, pin
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tasks.datasets.hub_cache import allow_downloads
from tests.tasks.datasets.test_routes import COMMIT, by_hub_cache, twice

NAME = f"hf:clinic/scans/default@{COMMIT}"
OTHER = "f" * 40
SAMPLE = twice([1, 0], ("well", "ill"))


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cached data set."""
    by_hub_cache(tmp_path, SAMPLE)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "refs"))
    return tmp_path / "hub" / "clinic___scans" / "default" / "0.0.0" / COMMIT


def error_of(name: str) -> str:
    with pytest.raises(DatasetError) as caught:
        pin(Dataset.parse(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_names_become_commits(cached: Path, tmp_path: Path) -> None:
    refs = tmp_path / "refs" / "datasets--clinic--scans" / "refs"
    refs.mkdir(parents=True)
    (refs / "v1").write_text(COMMIT)
    names = ("", "/default", f"@{COMMIT}", f"@{COMMIT[:9]}", "@v1", "/default@v1", f"/default@{COMMIT}")
    pinned = {pin(Dataset.parse(f"hf:clinic/scans{name}")) for name in names}
    assert {dataset.name for dataset in pinned} == {NAME}
    (dataset,) = pinned
    assert Dataset.parse(str(dataset)) == dataset
    assert Dataset.parse(NAME) == Dataset(NAME)
    assert dataset.named() == dataset
    assert f"{cached}/scans-test.arrow:0" in image_names(dataset)
    with_options = pin(Dataset(f"{NAME}#image=image,label=label#8x8"))
    assert with_options.name == f"{NAME}#image=image#label=label#8x8"
    shutil.copytree(cached, cached.with_name(OTHER))
    assert error_of("hf:clinic/scans").endswith(
        f"several revisions in the cache, {COMMIT}, {OTHER}; name one, such as {NAME}"
    )
    shutil.copytree(cached.parents[1], cached.parents[2] / "large")
    assert "several configurations in the cache, default, large; name one" in error_of(f"hf:clinic/scans@{COMMIT}")
    assert pin(Dataset(f"hf:clinic/scans/large@{COMMIT}")).digest == dataset.digest


def test_absent_sets_name_the_command(cached: Path) -> None:
    assert error_of("hf:clinic/scans/default@main") == (
        f"data set 'hf:clinic/scans/default@main' is not in the cache {hub_cache.cache_root()}, which has {NAME}; add "
        '--download to the command, or fetch it with: python -c "from datasets import load_dataset as d; '
        "d('clinic/scans', 'default', revision='main')\""
    )
    for name in ("hf:", "hf:../x", "hf:a/b/c/d", "hf:a@", "hf:a/b@x/../y", "hf:a b"):
        with pytest.raises(UnknownDataset, match="write it as hf:NAME@REVISION or hf:NAME/CONFIG@REVISION"):
            pin(Dataset(name))


def test_download_requires_the_extra(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_cache, "DATASETS", Extra("no-such-package", "hub", DATASETS.purpose, "no_such_package"))
    with allow_downloads():
        assert pin(Dataset(NAME)).name == NAME  # nothing to download
        message = error_of("hf:clinic/other")
    assert message.startswith("downloading data set 'hf:clinic/other' needs no-such-package: ")


def test_download_takes_the_commit_of_the_hub(cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for both libraries, since there is no hub here."""
    requested = []
    builder = types.SimpleNamespace(
        cache_dir=str(cached.with_name(OTHER)), hash=OTHER, config=types.SimpleNamespace(name="default")
    )
    builder.download_and_prepare = lambda: shutil.copytree(cached, builder.cache_dir)

    def load_dataset_builder(*arguments: object, **options: object) -> types.SimpleNamespace:
        requested.append((arguments, options))
        return builder

    library = types.ModuleType("datasets")
    library.__dict__.update(disable_progress_bars=lambda: None, load_dataset_builder=load_dataset_builder)
    hub = types.ModuleType("huggingface_hub")
    info = types.SimpleNamespace(dataset_info=lambda repository, revision: types.SimpleNamespace(sha=OTHER))
    hub.__dict__.update(HfApi=lambda: info)
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr(hub_cache, "DATASETS", Extra("pytest", "hub", DATASETS.purpose))
    monkeypatch.setattr(hub_cache, "_downloaded", {})
    with allow_downloads():
        pinned = pin(Dataset("hf:clinic/scans@main"))
    assert pinned.name == f"hf:clinic/scans/default@{OTHER}"
    assert requested == [(("clinic/scans", None), {"revision": OTHER})]
    assert pin(Dataset("hf:clinic/scans@main")) == pinned  # in the same process
    builder.hash = COMMIT
    builder.download_and_prepare = lambda: None
    with allow_downloads():
        assert error_of("hf:clinic/scans@v2").endswith(f"cannot be downloaded: got revision {COMMIT}, not {OTHER}")


def test_images_may_be_files(cached: Path, tmp_path: Path) -> None:
    expected = pin(Dataset(NAME)).digest
    path = cached / "scans-test.arrow"
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        table = stream.read_all()
    rows = []
    for number, image in enumerate(table["image"].to_pylist()):
        (tmp_path / f"{number}.png").write_bytes(image["bytes"])
        rows.append({"bytes": None, "path": str(tmp_path / f"{number}.png")})
    columns = [pa.array(rows, table.schema.field("image").type), table["label"]]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(pa.table(columns, schema=table.schema))
    assert pin(Dataset(NAME)).digest == expected
    (tmp_path / "0.png").unlink()
    assert "0.png cannot be read: No such file" in error_of(f"{NAME}#rgb")


def test_damaged_sets_are_named(cached: Path) -> None:
    info = json.loads((cached / "dataset_info.json").read_text())
    (cached / "dataset_info.json").write_text(json.dumps({**info, "splits": {"train": info["splits"]["train"]}}))
    assert "has the splits train, but not 'test'; it must have both" in error_of(NAME)
    for content in ("", "[]", "{}", '{"splits": 1}', '{"splits": {"train": 1}}', "[" * 99999):
        (cached / "dataset_info.json").write_text(content)
        assert "dataset_info.json does not describe a data set in the cache: " in error_of(NAME)
    info["splits"]["test"]["num_examples"] = 7
    (cached / "dataset_info.json").write_text(json.dumps(info))
    assert error_of(NAME).endswith("has 2 rows in its split test, but dataset_info.json states 7")
    (cached / "scans-test.arrow").unlink()
    assert f"there is no file {cached}/scans-test.arrow; delete the folder, and download" in error_of(NAME)


def test_damage_anywhere_ends_in_one_line(cached: Path) -> None:
    draw = random.Random(0)
    whole = (cached / "scans-test.arrow").read_bytes()
    refused = 0
    for number in range(100):
        content = bytearray(whole[: draw.randrange(len(whole))] if number % 2 else whole)
        for _ in range(draw.randrange(1, 9)):
            if content:
                content[draw.randrange(len(content))] = draw.randrange(256)
        (cached / "scans-test.arrow").write_bytes(content)
        try:
            pin(Dataset(NAME))
        except DatasetError as error:
            message = str(error)
            refused += 1
        else:
            message = ""
        assert "\n" not in message
    assert refused > 50


def test_cache_of_the_library_equals_its_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    schema = SAMPLE.schema(image=pa.struct([("bytes", pa.binary()), ("path", pa.string())]), label=pa.int64())
    for split in ("train", "test"):
        rows = [row for row, split_of_row in enumerate(SAMPLE.splits) if split_of_row == split]
        images = [{"bytes": SAMPLE.pictures[row], "path": None} for row in rows]
        table = pa.table([images, [SAMPLE.labels[row] for row in rows]], schema=schema)
        pq.write_table(table, tmp_path / f"{split}.parquet")
    files = {split: str(tmp_path / f"{split}.parquet") for split in ("train", "test")}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    folder = Path(loaded["train"].cache_files[0]["filename"]).parent
    name = f"hf:parquet/{folder.parts[-3]}@{folder.name}"
    assert pin(Dataset(name)).digest == pin(Dataset(f"parquet:{tmp_path}")).digest
