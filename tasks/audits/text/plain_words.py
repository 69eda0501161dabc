"""Text that several questions use in their certificates, for readers without a machine-learning background."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from tasks.audits.text.question import ReturnedTable
from tasks.audits.text.tuning import TextReading
from tasks.contract.certificate import NO_CONCLUSION_YET, TOO_SMALL, Boundary, NumberLine, range_per_hundred
from tasks.contract.examined_models import describe_tables
from tasks.contract.summaries import Row, blank_weak_interval
from tasks.language_models.language_model import LanguageModel

DISCLOSED = "Treat {items} as disclosed to everyone who can query a model trained on them."


def share_line(
    row: Row | None, label: str, null_words: str, boundaries: tuple[Boundary, ...] = ()
) -> NumberLine | None:
    """Return a share on a number line, per hundred, or None if there is no estimate."""
    if row is None or row["estimate"] is None:
        return None
    shown_row = blank_weak_interval(row)
    low = None if shown_row["low"] is None else 100 * shown_row["low"]
    high = None if shown_row["high"] is None else 100 * shown_row["high"]
    null = None if shown_row["null"] is None else 100 * shown_row["null"]
    return NumberLine(label, 100 * shown_row["estimate"], low, high, null, null_words, boundaries=boundaries)


def clearing_boundary(negligible: float) -> tuple[Boundary, ...]:
    """Return the share, per hundred, below which the answer can be *not detected*."""
    return (Boundary(100 * (0.5 + negligible), "not detected only if the whole interval is below", clears=True),)


def interval_per_hundred(row: Mapping[str, Any]) -> str:
    """Format the 95 % interval of a share in per cent, in parentheses and with a leading space.

    Returns an empty string if there is no interval, or if it has no width.
    """
    shown_row = blank_weak_interval(row)
    if shown_row["low"] is None or shown_row["high"] is None or shown_row["low"] == shown_row["high"]:
        return ""
    return f" (95 % interval: {range_per_hundred(shown_row)} %)"


def disclose(items: str, *next_steps: str) -> tuple[str, ...]:
    """Return the next steps if these items are memorised."""
    return (DISCLOSED.format(items=items), *next_steps)


def collect_evidence(advice: str) -> tuple[str, ...]:
    """Return the next steps if the evidence is insufficient. `advice` is an imperative clause without a period."""
    return (NO_CONCLUSION_YET, f"Audit again with more evidence: {advice}.")


def name_given_model(source: TextReading | ReturnedTable) -> str:
    """Name the given model that was examined, or the table that its owner returned."""
    if isinstance(source, ReturnedTable):
        return describe_tables([source.outputs.path])
    return f"The audit examined the language model {shorten_model(source.model)}."


def explain_doubt(finds_one: bool, item: str) -> str:
    """Explain why the answer is undecided: too few models or candidates, or an interval that is too wide."""
    if not finds_one:
        return TOO_SMALL.format(item=item)
    return "The interval includes shares that would matter, so memorisation cannot be ruled out."


def shorten_model(model: LanguageModel) -> str:
    """Name a model and its adapter without their folders or the hub, such as `gpt2` for hub:gpt2."""
    paths = model.name.partition(":")[2] or model.name
    return "+".join(PurePath(path).name for path in paths.split("+"))
