"""The content of a search folder: its settings, the trials so far, and its recommendation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from orchestrator.errors import StoreError
from orchestrator.inspection.disclosure import is_private, typed_config
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import resolve
from orchestrator.spec.fields import text
from tasks.contract.verdict import Tone

Row = Mapping[str, Any]  # a row of the `trials` table
TRIALS, FRONT = TABLES = ("trials", "front")
SEARCH = "search"  # column with the name of the search in exported tables
QUESTION = "Which training memorises least and is still useful enough?"  # the same for every search
# parts of a search
SEARCHED = "search"
FRESH = "fresh"
START = 0  # number of the trial that a search starts from
CUT = "interrupted"  # state of a trial that must be repeated
RECOMMENDED = "recommended"
VALUES = ("estimate", "low", "high", "n", "unit")  # columns of an objective


@dataclass(frozen=True)
class SearchAnswer:
    """The recommendation of a search: a word and a sentence. `winner` is the trial that was audited again.

    estimate, low, high: the winner's reduction in memorisation compared with the start, from their fresh audits, with
    its 95 % interval. None unless both audits exist.
    """

    answer: str
    sentence: str
    winner: int | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def tone(self) -> Tone:
        if self.answer == RECOMMENDED:
            return "cleared"
        return "open"

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        fields = {name: getattr(self, name) for name in ("answer", "sentence", "winner")}
        numbers = {name: getattr(self, name) for name in ("estimate", "low", "high")}
        return {**fields, "difference": None if self.estimate is None else numbers}


@dataclass(frozen=True)
class SearchResults:
    """The current state of a search.

    settings: `over` contains the varied values, as text by field; the other names are options of `engram search`.
    trials: the rows of the table `trials`, the start first and the fresh audits last.
    answer: None until the search has ended.
    """

    name: str
    audit: str
    settings: Mapping[str, Any]
    trials: tuple[Row, ...]
    answer: SearchAnswer | None = None
    _table: pa.Table = field(default_factory=lambda: pa.table({}), repr=False, compare=False)

    @property
    def planned(self) -> int:
        """The number of planned trials, without the start and the fresh audits."""
        return int(self.settings["trials"])

    @property
    def made(self) -> int:
        """The number of trials that have ended, in any state."""
        return sum(row["part"] == SEARCHED and row["trial"] != START and row["state"] != CUT for row in self.trials)

    @property
    def ended(self) -> bool:
        """Whether all trials have ended and the winner has been audited again."""
        if self.answer is None or self.made < self.planned:
            return False
        audited_trials = set()
        for row in self.trials:
            if row["part"] == FRESH and row["state"] != CUT:
                audited_trials.add(row["trial"])
        return self.answer.winner is None or {START, self.answer.winner} <= audited_trials

    def table(self, name: str) -> pa.Table:
        """Return the table `trials` or `front`. It has no columns until a trial has ended."""
        if name == TRIALS or not self._table.num_rows:
            return self._table
        return self._table.filter(pa.array([row["front"] for row in self.trials]))

    def trial(self, number: int, part: str = SEARCHED) -> Row | None:
        """Return the trial with this number, or None if it has not ended."""
        return next((row for row in self.trials if (row["part"], row["trial"]) == (part, number)), None)


def is_search(about: Mapping[str, Any]) -> bool:
    """Return whether this is the content of a search's `run.json`."""
    return "search" in about


def read_search(journal: Journal) -> SearchResults:
    """Read the search in this folder. If the journal is public, private parts are removed.

    Raises StoreError if the search cannot be read.
    """
    about = Journal(journal.folder).about()
    table = _table(journal)
    rows = table.to_pylist()
    choices = [json.loads(row["setting"]) for row in rows]
    public = journal.public_part({**about, "search": {**about["search"], "chosen": choices}})["search"]
    recommendation = about["search"].get("recommendation")
    words = _replacements(choices, public["chosen"])
    if journal.discloses:
        withholds_notes = bool(words) or any(
            is_private(typed_config(journal.sibling(run).about())) for run in about["cells"][:1]
        )
        public_rows = zip(rows, public["chosen"], strict=True)
        rows = []
        for row, public_choice in public_rows:
            rows.append({**row, "setting": json.dumps(public_choice), "note": "" if withholds_notes else row["note"]})
        table = pa.Table.from_pylist(rows, table.schema)
    settings = {}
    for name, value in public.items():
        if name not in ("recommendation", "chosen"):
            settings[name] = value
    if recommendation is None:
        answer = None
    else:
        answer = parse_answer(recommendation, words)
    return SearchResults(journal.run, about["audit"], settings, tuple(rows), answer, table)


def read_if_search(journal: Journal) -> SearchResults | None:
    """Apply `read_search`, or return None for the folder of a run or sweep."""
    if is_search(Journal(journal.folder).about()):
        return read_search(journal)
    return None


def setting(row: Row) -> dict[str, Any]:
    """Return the choices of a trial, that is, the fields in which it differs from the start."""
    return dict(json.loads(row["setting"]))


def trial_name(row: Row) -> str:
    """Name a trial by its choices, such as `dropout=true, learning_rate=0.0003`, or `start`."""
    choices = setting(row)
    words = resolve.label(choices, choices) or "start"
    if row["part"] == FRESH:
        return f"{words}, fresh seeds"
    return words


def value(row: Row, objective: str) -> dict[str, Any] | None:
    """Return the trial's `memorization` or `utility`: estimate, low, high, n and unit.

    Returns None without an estimate.
    """
    if row[objective] is None:
        return None
    result = {}
    for name in VALUES:
        result[name] = row[objective if name == "estimate" else f"{objective}_{name}"]
    return result


def _table(journal: Journal) -> pa.Table:
    """Return the stored trials. The table is empty until one has ended."""
    import pyarrow.parquet as pq

    path = journal.folder / "tables" / TRIALS / f"{TRIALS}.parquet"
    try:
        return pq.read_table(path)
    except FileNotFoundError:
        return pa.table({})
    except (OSError, pa.ArrowException) as error:
        line = " ".join(str(error).split())
        raise StoreError(f"cannot read {path}: {line}; `engram search --resume {journal.run}` rewrites it") from None


def _replacements(private_choices: Sequence[Mapping[str, Any]], public: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each private choice to its stand-in, both written as `field=value`."""
    pairs = []
    for private_choice, public_choice in zip(private_choices, public, strict=True):
        for name, value in private_choice.items():
            pairs.append((f"{name}={text(value)}", f"{name}={text(public_choice[name])}"))
    return {private: stand_in for private, stand_in in pairs if private != stand_in}


def parse_answer(recommendation: Mapping[str, Any], words: Mapping[str, str] = MappingProxyType({})) -> SearchAnswer:
    """Parse the stored answer of a search, and replace private choices by these words."""
    sentence = recommendation["sentence"]
    for private in sorted(words, key=len, reverse=True):  # one may be a prefix of another
        sentence = sentence.replace(private, words[private])
    return SearchAnswer(
        recommendation["answer"], sentence, recommendation["winner"], **(recommendation["difference"] or {})
    )


@dataclass(frozen=True)
class TrialOf:
    """The trials of a search that share one run, as (number, part). Empty until a trial has ended."""

    search: str
    trials: tuple[tuple[int, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the trials as JSON."""
        return {"search": self.search, "trials": [{"trial": number, "part": part} for number, part in self.trials]}

    @property
    def words(self) -> str:
        """The trials as text, such as `the start and trial 3, fresh seeds`."""
        trial_names = []
        for number, part in self.trials:
            trial_names.append(
                f"{'the start' if number == START else f'trial {number}'}{', fresh seeds' if part == FRESH else ''}"
            )
        return " and ".join(trial_names) or "a trial that has not ended"


def parent_searches(run: Journal) -> tuple[TrialOf, ...]:
    """Return the searches in the same store that contain the run as a trial. Unreadable searches are omitted."""
    searches = []
    for folder in sorted(run.folder.parent.glob("*-search-*")):
        with suppress(StoreError):
            searches.append(_trial_of(Journal(folder), run))
    return tuple(search for search in searches if search is not None)


def _trial_of(search: Journal, run: Journal) -> TrialOf | None:
    about = search.about()
    if not is_search(about):
        return None
    rows = read_search(search).trials if run.run in about["cells"] else ()
    trials = tuple((row["trial"], row["part"]) for row in rows if row["run"] == run.run)
    was_started = any(event.get("search") == search.run for event in run.last_start(("started",)))
    return TrialOf(search.run, trials) if trials or was_started else None
