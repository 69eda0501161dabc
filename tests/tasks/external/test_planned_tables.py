"""Every audit that reads an owner's table checks it when a run is planned: one line, and no run is left behind."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.shell import Here, refusals

SECRET, OTHER_SECRET = "0123456789abcdef" * 2, "fedcba9876543210" * 2
Rows = list[dict[str, Any]]

# The fields of an audit, those of another secret or seed, and the field of its table.
IMAGES: dict[str, tuple[list[str], str, str]] = {
    "unique_feature": (
        ["given.shape=12,12,1", "probe=photos#12x12", "probes=20", "family.count=9", f"given.secret={SECRET}"],
        f"given.secret={OTHER_SECRET}",
        "given.outputs",
    ),
    "membership": (["data=digits", "examples=40", "given.controls=20", "models=20"], "seed=5", "given.outputs"),
    "forgetting": (
        ["--preset", "plain-digits", f"query.secret={SECRET}"],
        f"query.secret={OTHER_SECRET}",
        "given.outputs",
    ),
}


def right_rows(ids: list[str]) -> Rows:
    chance = np.random.default_rng(0).dirichlet(np.ones(10), len(ids))
    return [
        {"image": id_, **{f"p{number}": p for number, p in enumerate(row)}}
        for id_, row in zip(ids, chance, strict=True)
    ]


def rename(rows: Rows) -> Rows:
    return [{"image": row["image"], **{f"class {name}": row[name] for name in row if name != "image"}} for row in rows]


def multiply(rows: Rows) -> Rows:
    return [{"image": row["image"], **{name: 100 * row[name] for name in row if name != "image"}} for row in rows]


def keep_labels(rows: Rows) -> Rows:
    labels = [max((name for name in row if name != "image"), key=lambda name: row[name]) for row in rows]
    return [{"image": row["image"], "class": label[1:]} for row, label in zip(rows, labels, strict=True)]


WRONG: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "other columns": (rename, r"unknown column 'class p0'|has no confidences"),
    "rows missing": (lambda rows: rows[: len(rows) // 2], r"has no row for '.*'; \d+ of \d+ are missing"),
    "in percent": (multiply, r"are not all probabilities, in \[0, 1\]"),
    "labels alone": (keep_labels, r"unknown column 'class'|has no confidences"),
}


def write_table(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def handed_ids(engram: Here, audit: str, fields: list[str], folder: str) -> list[str]:
    engram("probes", audit, *fields, "--out", folder)
    with (engram.folder / folder / "images.csv").open() as file:
        return [row["image"] for row in csv.DictReader(file)]


@pytest.fixture(scope="module", params=IMAGES)
def planned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Here, str, Rows]:
    engram = Here(tmp_path_factory.mktemp(request.param))
    ids = handed_ids(engram, request.param, IMAGES[request.param][0], "pictures")
    return engram, request.param, right_rows(ids)


def refuse(engram: Here, audit: str, *fields: str) -> str:
    for command in ("plan", "run"):
        said = engram(command, audit, *fields, code=2)
        assert len(refusals(said.stderr)) == 1
        assert "Traceback" not in said.stderr
    assert not list((engram.folder / "engram-store").glob("runs/*"))
    return " ".join(refusals(said.stderr)[0].split())


def test_a_wrong_table_is_refused_before_a_run_begins(planned: tuple[Here, str, Rows]) -> None:
    engram, audit, rows = planned
    fields, _, table = IMAGES[audit]
    for name, (change, message) in WRONG.items():
        write_table(engram.folder / "outputs.csv", change(rows))
        assert re.search(message, refuse(engram, audit, *fields, f"{table}=outputs.csv")), name


def test_a_table_of_another_secret_is_named_by_both_sets(planned: tuple[Here, str, Rows]) -> None:
    engram, audit, rows = planned
    fields, other, table = IMAGES[audit]
    write_table(engram.folder / "outputs.csv", rows)
    asked = [*fields, f"{table}=outputs.csv"]
    engram("plan", audit, *asked)
    told = refuse(engram, audit, *asked[:-2], *([asked[-2]] if "secret" not in other else []), other, asked[-1])
    sets = re.search(
        r"outputs\.csv answers (pictures-\w{8}); these settings and this secret generate (pictures-\w{8}):", told
    )
    assert sets
    assert rows[0]["image"].startswith(f"{sets[1]}/")
    assert sets[1] != sets[2]


def test_predictions_and_texts_are_checked_too(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    asked = ["--preset", "identifiers", "secrets=6", "references=199", "examples=40"]
    engram("probes", "text", *asked, "--out", "texts")
    lines = next((tmp_path / "texts").glob("texts-*.jsonl")).read_text().splitlines()
    rows = [{"id": json.loads(line)["id"], "log_p": -50.5 - number} for number, line in enumerate(lines)]
    write_table(tmp_path / "log_p.csv", rows)
    engram("plan", "text", *asked, "outputs=log_p.csv")
    assert "answers texts-" in refuse(engram, "text", *asked, "seed=9", "outputs=log_p.csv")
    write_table(tmp_path / "log_p.csv", rows[:9])
    assert "has no row for" in refuse(engram, "text", *asked, "outputs=log_p.csv")
    write_table(tmp_path / "log_p.csv", [{**row, "log_p": 3.0} for row in rows])
    assert "it must be a log probability" in refuse(engram, "text", *asked, "outputs=log_p.csv")
