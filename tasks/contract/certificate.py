"""The answer of an audit for somebody who knows no machine learning: what was asked, what came out, and by which rule.

An audit that writes none of its own has one made of its question, its verdict and the row that this rests on first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tasks.contract.stand_in import begin_sentence
from tasks.contract.summaries import blank_weak_interval, index_rows

if TYPE_CHECKING:
    from tasks.contract.verdict import Meaning, Verdict

NOTHING = "where nothing is memorised"
OTHERS = "95 % of models that never saw it"


@dataclass(frozen=True)
class Boundary:
    """A value at which the rule decides otherwise, and in a few words what begins there.

    `clears` where beyond it lies the answer that clears; else the one that accuses.
    """

    value: float
    words: str
    clears: bool = False


@dataclass(frozen=True)
class NumberLine:
    """A number on a line, beside what it is compared with; all in the unit that `what` names.

    `low` and `high` are its interval, which has this `coverage` in per cent. `usual` is where 95 % of models that never
    saw it lie, from and to; an end that is infinite is the line's own. With `logarithmic` all values are above 0.
    """

    what: str
    estimate: float
    low: float | None = None
    high: float | None = None
    null: float | None = None
    null_words: str = NOTHING
    usual: tuple[float, float] | None = None
    boundaries: tuple[Boundary, ...] = ()
    logarithmic: bool = False
    coverage: float = 95.0


@dataclass(frozen=True)
class Finding:
    """The answer on one target in plain sentences, with its number; `target` is empty where there is only one."""

    answer: str
    sentence: str
    line: NumberLine | None = None
    target: str = ""


@dataclass(frozen=True)
class Certificate:
    """What a person can act on.

    asked: the question in plain words. rule: when which answer is given, by which test and on which side. error: how
    often that is wrong. beyond: what the answer does not say. steps: what to do next.
    """

    asked: str
    findings: tuple[Finding, ...]
    rule: str
    error: str
    beyond: str
    steps: tuple[str, ...]


STEPS: Mapping[str, tuple[str, ...]] = {
    "accused": (
        "Treat what was asked about as disclosed to whoever can use the model.",
        "Train anew without it, or with a safeguard, and audit again.",
    ),
    "cleared": ("Keep this page with the files that it names; ask again when the model or its data change.",),
    "open": ("Nothing follows yet, neither guilt nor innocence: ask more models or more data, as the answer says.",),
}


def made_of(
    question: str,
    verdict: Verdict,
    meaning: Meaning,
    summary: pa.Table,
    rule: Callable[..., Any] | None,
) -> Certificate:
    """The certificate of an audit that has none of its own; its rule is the docstring of the function `rule`."""
    rows = index_rows(summary)
    row = next((rows[name] for name in verdict.rows if name in rows), None)
    stated = " ".join((inspect.getdoc(rule) or "").split("\n\n")[0].split()) if rule is not None else ""
    return Certificate(
        asked=question,
        findings=(Finding(verdict.answer, f"{verdict.sentence} In short: {meaning.words}.", line_of(row)),),
        rule=stated,
        error="",
        beyond=verdict.limits,
        steps=STEPS[meaning.tone],
    )


def add_names(certificate: Certificate, names: str) -> Certificate:
    """The certificate whose first finding says by number what was found."""
    first, *others = certificate.findings
    return replace(certificate, findings=(replace(first, sentence=f"{first.sentence} {names}"), *others))


def name_stand_in(certificate: Certificate, stand_in: str) -> Certificate:
    """The certificate whose first finding begins with the stand-in, if there is one."""
    if not stand_in:
        return certificate
    first, *rest = certificate.findings
    return replace(certificate, findings=(replace(first, sentence=begin_sentence(first.sentence, stand_in)), *rest))


def line_of(row: Mapping[str, Any] | None, what: str = "", **more: Any) -> NumberLine | None:
    """A row of a summary as a number line; None where it has no finite estimate."""
    if row is None or row["estimate"] is None or not math.isfinite(row["estimate"]):
        return None
    row = blank_weak_interval(row)
    return NumberLine(what or row["metric"], row["estimate"], row["low"], row["high"], row["null"], **more)


def number_per_hundred(share: float) -> str:
    """A share as a number of a hundred, to two digits: 12 for 0.123."""
    return f"{float(f'{100 * share:.2g}') + 0.0:g}"  # no sign where it is 0


def steps_of_null(answer: str, audit: str) -> tuple[str, ...]:
    """What to do after a null, whose subject was not trained on; `audit` are the settings of the audit proper."""
    proper = f"To learn whether anything is kept of what models are trained on, run the audit itself: {audit}."
    if answer == "memorised":
        return (
            "Nothing is disclosed by this: it is a false alarm. Run the null with other seeds (seed=1, seed=2): false "
            "alarms should be no more frequent than is stated above.",
            proper,
        )
    return ("Keep this page beside that of the audit: it shows what comes out where nothing can be kept.", proper)


def chances(p: float, level: float) -> NumberLine:
    """A p-value on a line from 1 downwards, with the level at which the test accuses."""
    return NumberLine(
        "how often chance alone brings as much (p)",
        p,
        null=1.0,
        null_words="always",
        boundaries=(Boundary(level, f"called so at {level:g} and below"),),
        logarithmic=True,
    )
