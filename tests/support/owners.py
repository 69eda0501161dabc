"""A toy model and its returned file for every audit with a handout.

The toy hashes the content of an image, text or question, so repeated probes get equal answers.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SECRET = "0123456789abcdef" * 2
OTHER_SECRET = "fedcba9876543210" * 2
CLASSES = 10


@dataclass(frozen=True)
class Answers:
    """The content of a returned file: the names of the columns, ids first, and the rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def write(self, path: Path) -> None:
        writers = {".csv": self._write_csv, ".parquet": self._write_parquet, ".json": self._write_json}
        writers[path.suffix](path)

    def _write_csv(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([self.columns, *self.rows])

    def _write_parquet(self, path: Path) -> None:
        values = zip(*self.rows, strict=True)
        pq.write_table(pa.table(dict(zip(self.columns, values, strict=True))), path)

    def _write_json(self, path: Path) -> None:
        """An object that may have an id twice, which a dictionary could not."""
        entries = [f"{json.dumps(row[0])}: {json.dumps(row[1])}" for row in self.rows]
        path.write_text("{" + ", ".join(entries) + "}")


def hash_bytes(content: str | bytes) -> bytes:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).digest()


def listed_images(folder: Path) -> dict[str, bytes]:
    """The files of the images by their ids, in the order of the list."""
    with (folder / "images.csv").open(newline="") as file:
        images = {}
        for row in csv.DictReader(file):
            images[row["image"]] = (folder / row["image"]).read_bytes()
        return images


def predict_classes(folder: Path) -> Answers:
    rows = []
    for image, content in listed_images(folder).items():
        weights = [1 + byte for byte in hash_bytes(content)[:CLASSES]]
        rows.append([image, *(weight / sum(weights) for weight in weights)])
    return Answers(["image", *(f"p{number}" for number in range(CLASSES))], rows)


def embed_images(folder: Path) -> Answers:
    images = listed_images(folder)
    return Answers(
        ["image", "embedding"], [[image, [float(byte) for byte in hash_bytes(images[image])[:8]]] for image in images]
    )


def score_texts(folder: Path) -> Answers:
    (path,) = folder.glob("texts-*.jsonl")
    records = map(json.loads, path.read_text().splitlines())
    return Answers(["id", "log_p"], [[row["id"], -1.5 - sum(hash_bytes(row["text"]))] for row in records])


def answer_questions(folder: Path) -> Answers:
    (path,) = (folder / "questions").iterdir()
    rows = []
    for passage in json.loads(path.read_text()).values():
        number = str(hash_bytes(passage["passage"])[0])
        rows += [[question["query_id"], number] for question in passage["qa_pairs"]]
    return Answers(["id", "answer"], rows)


@dataclass(frozen=True)
class Owner:
    """The audit of an external model, and the program that answers its probes.

    `settings` configure the audit, `other_setting` changes the probes, `field` takes the returned file,
    `file`, and `respond` is the owner's program. `run_settings` lists settings for runs alone.
    """

    audit: str
    settings: Sequence[str]
    other_setting: str
    field: str
    file: str
    respond: Callable[[Path], Answers]
    preset: str | None = None
    run_settings: Sequence[str] = ()

    def arguments(self, *more: str) -> list[str]:
        """The audit, its preset and settings; a later setting of a field replaces an earlier one."""
        preset = [] if self.preset is None else ["--preset", self.preset]
        fields = dict(setting.split("=", 1) for setting in (*self.settings, *more))
        return [self.audit, *preset, *(f"{name}={value}" for name, value in fields.items())]

    def returned(self, name: str) -> list[str]:
        """The settings of a run on a returned file."""
        return [*self.run_settings, f"{self.field}={name}"]


OWNERS = (
    Owner(
        "unique_feature",
        (
            "given.shape=12,12,1",
            "probe=photos#12x12",
            "probes=20",
            "family.count=9",
            f"given.secret={SECRET}",
        ),
        f"given.secret={OTHER_SECRET}",
        "given.outputs",
        "outputs.csv",
        predict_classes,
    ),
    Owner(
        "membership",
        ("question=given", "data=digits", "examples=40", "given.non_member_examples=20", "models=20"),
        "seed=5",
        "given.outputs",
        "outputs.csv",
        predict_classes,
    ),
    Owner(
        "forgetting",
        (f"query.secret={SECRET}", "query.examples=200"),
        f"query.secret={OTHER_SECRET}",
        "given.outputs",
        "outputs.csv",
        predict_classes,
        "plain-digits",
    ),
    Owner(
        "relational",
        (f"secret={SECRET}",),
        f"secret={OTHER_SECRET}",
        "predictions",
        "answers.json",
        answer_questions,
        "smoke",
    ),
    Owner(
        "text",
        ("question=planted", "secrets=6", "references=119", f"secret={SECRET}"),
        f"secret={OTHER_SECRET}",
        "outputs",
        "log_p.csv",
        score_texts,
        "smoke",
    ),
    Owner(
        "deja_vu",
        ("per_class=10", "public=100"),
        "crop=corner",
        "given.embeddings",
        "embeddings.parquet",
        embed_images,
        "quickstart",
        ("given.references=1",),
    ),
)
