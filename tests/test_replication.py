"""docs/replication.md lists each preset with exactly the parts of the paper that it repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from orchestrator.spec.audits import find
from orchestrator.spec.config_parts import walk
from tasks.datasets.catalog import is_embedded
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tests.support.shell import ROOT

PAGE = (ROOT / "docs" / "replication.md").read_text()
HEAD, *SECTIONS = re.split(r"^## (\w+)\n", PAGE, flags=re.M)
AUDITS = dict(zip(SECTIONS[::2], SECTIONS[1::2], strict=True))
AT_HAND = {"mnist", "cifar10"}  # in addition to embedded data
PART = r"\d+(?:\.\d+)?[a-d]?"
OURS = "ours:"


class Line(NamedTuple):
    """A line of an audit's table: parts of the paper, their presets, and the part that ran."""

    parts: frozenset[str]
    presets: tuple[str, ...]
    ran: str

    def __str__(self) -> str:
        return f"{', '.join(sorted(self.parts)) or 'another'} ({', '.join(self.presets)})"


def parts(text: str) -> frozenset[str]:
    """The tables, figures and sections that a text names before its first colon: "figure 4a", "table 2"."""
    matches = re.finditer(rf"\b(table|figure|section)s? ((?:{PART}(?:, | and )?)+)", text.split(":")[0], re.IGNORECASE)
    return frozenset(f"{match[1].lower()} {number}" for match in matches for number in re.findall(PART, match[2]))


def lines(audit: str) -> Iterator[Line]:
    """Yield the lines of the audit's table that name presets."""
    for line in AUDITS[audit].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and "`" in cells[1] and "/" not in cells[1]:
            names = re.findall(r"`([\w-]+)`", cells[1].split(",")[0] if " in a " in cells[1] else cells[1])
            yield Line(parts(cells[0]), tuple(names), cells[2].lstrip("["))


def needs(config: Any) -> set[str]:
    """The names of data sets, models with weights and predictions that are not embedded."""
    external_parts = []
    for _, part in walk(config):
        if isinstance(part, Dataset | LanguageModel | Predictions):
            external_parts.append(part)
    names = set()
    for part in external_parts:
        if not (isinstance(part, LanguageModel) and part.name.startswith("tiny-")):
            names.add("predictions" if isinstance(part, Predictions) else part.name)
    result = set()
    for name in names:
        if not is_embedded(name):
            result.add(re.split(r"[-#]on-photos|#", name)[0])
    return result


def letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def test_every_audit_has_a_table() -> None:
    assert {path.parent.name for path in (ROOT / "tasks" / "audits").glob("*/presets.py")} == set(AUDITS)


@pytest.mark.parametrize("audit", AUDITS)
def test_presets_are_listed_with_repeated_parts(audit: str) -> None:
    entry = find(audit).audit
    lines_by_preset = {name: [line for line in lines(audit) if name in line.presets] for name in entry.presets}
    for name, repeats in entry.wording.repeats.items():
        if not repeats.startswith(OURS):
            assert lines_by_preset[name], f"{name}: {repeats}"
            assert parts(repeats) <= frozenset().union(*(line.parts for line in lines_by_preset[name])), (
                f"{name}: {repeats}"
            )


@pytest.mark.parametrize("audit", AUDITS)
def test_lines_name_only_repeated_parts(audit: str) -> None:
    entry = find(audit).audit
    assert list(lines(audit))
    for line in lines(audit):
        assert set(line.presets) <= set(entry.presets), line
        repeated = [parts(entry.wording.repeats[name]) for name in line.presets]
        assert line.parts <= frozenset().union(*repeated), line


@pytest.mark.parametrize("audit", AUDITS)
def test_full_runs_need_available_data(audit: str) -> None:
    entry = find(audit).audit
    for line in lines(audit):
        assert line.ran.startswith(("in full", "partly", "never")), line
        if line.ran.startswith("in full"):
            required = set()
            for preset in line.presets:
                for cell in entry.cells(preset):
                    for name in needs(cell):
                        required.add(name)
            assert required <= AT_HAND, line


def test_missing_data_are_named() -> None:
    absent = letters(re.search(r"were available\.(.*)", HEAD, re.DOTALL)[1])  # type: ignore[index]
    for audit in AUDITS:
        entry = find(audit).audit
        for line in lines(audit):
            for preset in line.presets:
                for name in {name for cell in entry.cells(preset) for name in needs(cell)} - AT_HAND:
                    kind = re.split(r"[-#]", name.removeprefix("hub:"))[0]
                    assert kind in absent, f"{audit} {preset}: {name}"


def test_pairs_of_encoders_match_presets() -> None:
    audit = find("deja_vu").audit
    encoders = {
        name: {cell.pretraining(part, ()) for cell in audit.cells(name) for part in ("A", "B")}
        for line in lines("deja_vu")
        for name in line.presets
    }
    for line in lines("deja_vu"):
        pairs = re.search(r"(\d+) pairs? of trainings", line.ran)
        assert pairs is not None, line
        assert 2 * int(pairs[1]) == len(encoders[line.presets[0]]), line
    total = re.search(r"together they need (\d+) pairs", AUDITS["deja_vu"])
    assert total is not None
    assert 2 * int(total[1]) == len(set().union(*encoders.values()))
