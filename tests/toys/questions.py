"""Are the answers to questions longer than they need be?

An audit of records other than images: it counts the words of each answer that are not in a lexicon. It declares its
answers, and a configuration class that is pinned by its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import pyarrow as pa

from tasks.contract.audit import Audit, Handout, Wording
from tasks.contract.job import Inputs, Job, Roots, task
from tasks.contract.measure import Measure, Tables, roots, summarise
from tasks.contract.pinnable import Unavailable
from tasks.contract.summaries import Row, row
from tasks.contract.verdict import Meaning, Verdict
from tasks.datasets.catalog import load_records
from tasks.datasets.dataset import Dataset
from tasks.datasets.records import Records
from tasks.numerics import statistics

QUESTIONS = pa.schema(
    [
        ("id", pa.string()),
        pa.field("question", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
    ]
)
WORDS = pa.schema([("id", pa.string()), ("words", pa.int64())])


@dataclass(frozen=True)
class Lexicon:
    """A file of words, pinned by the words: their order and separators do not matter. Written `path`."""

    path: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Lexicon:
        path, _, digest = text.rpartition("@")
        return cls(path, digest) if path else cls(text)

    def __str__(self) -> str:
        return f"{self.path}@{self.digest}" if self.digest else self.path

    def named(self) -> Lexicon:
        return Lexicon(PurePath(self.path).name, self.digest)

    def identity(self) -> str:
        if not self.digest:
            raise ValueError(f"lexicon {self.path!r} has no digest yet; pin it before planning")
        return self.digest

    def pin(self, digests: MutableMapping[str, str]) -> Lexicon:
        if not self.path.endswith(".txt"):
            raise ValueError(f"lexicon is {self.path!r}; it must be a file that ends in .txt")
        pinned = Lexicon(str(Path(self.path).absolute()), self.digest_now())
        if self.digest and self.digest != pinned.digest:
            raise Unavailable(f"lexicon {self.path} is not the one that was pinned")
        return pinned

    def digest_now(self) -> str:
        return hashlib.sha256(" ".join(sorted(self.words())).encode()).hexdigest()

    def words(self) -> frozenset[str]:
        try:
            return frozenset(Path(self.path).read_text().lower().split())
        except OSError as error:
            raise Unavailable(f"lexicon {self.path} cannot be read: {error.strerror}") from None


SHIPPED = Dataset(f"records:{Path(__file__).with_suffix('.jsonl')}")


@dataclass(frozen=True)
class Config:
    """The questions, the number of parts, and the number of words that is enough. `says` overrides the answer."""

    data: Dataset = SHIPPED
    lexicon: Lexicon | None = None
    parts: int = 2
    enough: float = 3.0
    says: str = ""


@dataclass(frozen=True)
class Counting:
    """The answers in one of `parts` parts of the records."""

    data: Dataset
    lexicon: Lexicon | None
    part: int
    parts: int


@task(version=1)
def words(config: Counting, inputs: Inputs) -> pa.Table:
    passed = config.lexicon.words() if config.lexicon else frozenset()
    records = list(load_records(config.data, QUESTIONS).as_dicts())[config.part :: config.parts]
    counts = []
    for record in records:
        counts.append(sum(word not in passed for word in record["answer"].lower().split()))
    return pa.table([[record["id"] for record in records], counts], schema=WORDS)


def plan_words(config: Config, models: None) -> list[Job]:
    parts = [Counting(config.data, config.lexicon, part, config.parts) for part in range(config.parts)]
    return [Job(words, part) for part in parts]


def mean_words(tables: Tables, about: Config) -> Iterator[Row]:
    counts = [float(word_row["words"]) for word_row in tables.rows(WORDS)]
    if counts:
        yield row("words of an answer", {}, statistics.mean(counts), "answer", null=about.enough)


MEASURES = (Measure("words", WORDS, plan_words, mean_words),)


@dataclass(frozen=True)
class Enough:
    enough: float


@task(version=1, gathers=True)
def summary(config: Enough, inputs: Inputs) -> pa.Table:
    return summarise(MEASURES, inputs, config)


def plan(config: Config) -> Roots:
    return roots(MEASURES, config, None, lambda table_jobs: Job(summary, Enough(config.enough), table_jobs))


def verdict(config: Config, table: pa.Table) -> Verdict:
    limits = "How long an answer is says nothing of whether it is right."
    entry = next((summary_row for summary_row in table.to_pylist() if summary_row["low"] is not None), None)
    if entry is None:
        return Verdict(config.says or "unclear", "Unclear: there are too few answers.", limits, ())
    wordy = entry["low"] > config.enough
    short = entry["high"] < config.enough
    answer = config.says or ("wordy" if wordy else "short" if short else "unclear")
    sentence = (
        f"{answer.capitalize()}: an answer has {entry['estimate']:.3g} words, where {config.enough:g} are enough."
    )
    return Verdict(answer, sentence, limits, ((entry["metric"], entry["setting"]),))


def probes(config: Config) -> Iterator[tuple[str, Records]]:
    """The questions unchanged, and, with other ids, asked politely."""
    original = load_records(config.data, QUESTIONS)
    yield "plain", Records(original.table.select(["id", "question"]))
    polite = []
    for record in original.as_dicts():
        polite.append({"id": f"{record['id']}+please", "question": f"{record['question']} Please!"})
    yield "polite", Records(pa.Table.from_pylist(polite, QUESTIONS.remove(2)))


AUDIT = Audit(
    config=Config,
    plan=plan,
    presets={"smoke": Config()},
    tiny=lambda config: replace(config, data=SHIPPED, parts=2),
    verdict=verdict,
    measures=MEASURES,
    wording=Wording(
        answers={
            "wordy": Meaning("answers are longer than they need be", "accused"),
            "short": Meaning("answers are short enough", "cleared"),
            "unclear": Meaning("there are too few answers to say"),
        },
    ),
    handout=Handout(probes),
)
