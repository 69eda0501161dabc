"""An audit's answer for readers without a machine-learning background: question, finding and rule.

If an audit defines no certificate, one is derived from its question, its verdict and the summary row that the verdict
lists first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tasks.contract.conditions import Condition
from tasks.contract.stand_in import begin_sentence
from tasks.contract.summaries import blank_weak_interval, index_rows

if TYPE_CHECKING:
    from tasks.contract.verdict import Meaning, Verdict

NOTHING = "if nothing is memorised"
OTHERS = "95 % of models that never saw it"


@dataclass(frozen=True)
class Boundary:
    """A threshold of the rule, with a label for the range above it.

    `clears` is True if that range clears the model and False if it accuses the model.
    """

    value: float
    words: str
    clears: bool = False


@dataclass(frozen=True)
class NumberLine:
    """A number on a line, with reference values, all in the unit named by `what`.

    `low` and `high` are the ends of its interval, whose coverage in per cent is `coverage`. `usual` is the range of 95
    % of the models that never saw the data; an infinite end extends to the end of the line. If `logarithmic` is set,
    all values are above 0.
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
    """The answer for one target in plain sentences, with its number. `target` is empty if there is only one target."""

    answer: str
    sentence: str
    line: NumberLine | None = None
    target: str = ""


@dataclass(frozen=True)
class Certificate:
    """The text of a certificate.

    asked: The question in plain words.
    rule: The conditions of each answer, with the test and whether it is one- or two-sided.
    error: The error rate of the answer given. Paragraphs are separated by a newline.
    beyond: The conclusions that the answer does not support.
    steps: The next steps. Settings and commands are in backticks; if these follow a parenthesis, the page marks them as
    being for the technical team.
    examined: The models that were examined.
    other_errors: The error rates of other answers, and further rates, for the second page.
    conditions: What must be true for the answer to hold, and whether it is.
    """

    asked: str
    findings: tuple[Finding, ...]
    rule: str
    error: str
    beyond: str
    steps: tuple[str, ...]
    examined: str = ""
    other_errors: str = ""
    conditions: tuple[Condition, ...] = ()


STEPS: Mapping[str, tuple[str, ...]] = {
    "accused": (
        "Treat the tested data as disclosed to everyone who can use the model.",
        "Retrain without these data, or with a safeguard, and audit again.",
    ),
    "cleared": ("Keep this page with the files that it names. Audit again when the model or its data change.",),
    "open": ("Draw no conclusion yet, neither guilt nor innocence. Audit more models or more data.",),
}
RUN_NAME = "RUN"  # stands for the name of the run in the commands of next steps
RARITY = "Of 1,000"  # begins a sentence on how unusual a single result is
MOST_DIGITS = 6
WHOLE = 1e-6  # tolerance for a whole number
PRIVACY = "differential privacy, which limits the influence of each example"
NO_CONCLUSION_YET = "Draw no conclusion yet."
RELEVANT_SIZE = "smallest relevant size: memorised if the whole interval is above, not detected only if it is all below"
NOT_ENOUGH = "This evidence is not sufficient for an answer in either direction."


def made_of(
    question: str,
    verdict: Verdict,
    meaning: Meaning,
    summary: pa.Table,
    rule: Callable[..., Any] | None,
) -> Certificate:
    """Derive a certificate from a verdict. The first paragraph of the docstring of `rule` becomes its rule."""
    rows = index_rows(summary)
    row = next((rows[name] for name in verdict.rows if name in rows), None)
    stated = ""
    if rule is not None:
        stated = " ".join((inspect.getdoc(rule) or "").split("\n\n")[0].split())
    return Certificate(
        asked=question,
        findings=(Finding(verdict.answer, verdict.sentence, line_of(row)),),
        rule=stated,
        error="",
        beyond=verdict.limits,
        steps=STEPS[meaning.tone],
        conditions=verdict.conditions,
    )


def add_names(certificate: Certificate, names: str) -> Certificate:
    """Append the numbers of the items that were found to the first finding."""
    first, *later_findings = certificate.findings
    return replace(certificate, findings=(replace(first, sentence=f"{first.sentence} {names}"), *later_findings))


def name_stand_in(certificate: Certificate, stand_in: str) -> Certificate:
    """Name the stand-in at the start of the first finding, if there is one."""
    if not stand_in:
        return certificate
    first, *rest = certificate.findings
    return replace(certificate, findings=(replace(first, sentence=begin_sentence(first.sentence, stand_in)), *rest))


TOO_SMALL = "The audit was too small to rule out a single memorised {item}."


def line_of(row: Mapping[str, Any] | None, caption: str = "", **more: Any) -> NumberLine | None:
    """Return a summary row as a number line, or None if it has no finite estimate."""
    if row is None or row["estimate"] is None or not math.isfinite(row["estimate"]):
        return None
    row = blank_weak_interval(row)
    return NumberLine(caption or row["metric"], row["estimate"], row["low"], row["high"], row["null"], **more)


def number_per_hundred(share: float, digits: int = 2) -> str:
    """Format a share as a number per hundred with this number of significant digits: 12 for 0.123."""
    return f"{float(f'{100 * share:.{digits}g}') + 0.0:g}"  # + 0.0 turns -0 into 0


def range_per_hundred(row: Mapping[str, Any]) -> str:
    """Format the interval of a share in numbers per hundred: `1.2 to 3`. Different ends never look equal."""
    return " to ".join(_distinct_numbers(row["low"], row["high"]))


def _distinct_numbers(low: float, high: float) -> tuple[str, str]:
    """Format two shares as numbers per hundred, with as many digits as it takes to tell them apart."""
    digits = 2
    while low != high and digits < MOST_DIGITS and number_per_hundred(low, digits) == number_per_hundred(high, digits):
        digits += 1
    return number_per_hundred(low, digits), number_per_hundred(high, digits)


def part_of(share: float, n: int) -> str:
    """Format a share of n items as a count: `27 of 40`. An average over models may be no whole number: `68 % of 40`."""
    count = share * n
    if abs(count - round(count)) < WHOLE:
        return f"{round(count):,} of {n:,}"
    return f"{number_per_hundred(share)} % of {n:,}"


def describe_difference(row: Mapping[str, Any], first: str, second: str) -> str:
    """Format a difference of two shares and its interval without signs.

    `12 percentage points in favour of FIRST (95 % interval: 8 to 16 points)`. An interval that includes 0 is marked as
    being within the range of chance.
    """
    low, high = _distinct_numbers(row["low"], row["high"])
    if row["low"] > 0:
        interval = f"{low} to {_with_unit(high, 'point')}"
    elif row["high"] < 0:
        interval = f"{high.removeprefix('-')} to {_with_unit(low, 'point')}"
    else:
        ends = f"{_with_unit(low, 'point')} in favour of {second} to {_with_unit(high, 'point')} in favour of {first}"
        interval = f"from {ends}; this range includes no difference, so chance alone may explain the result"
    points = _with_unit(number_per_hundred(row["estimate"], 3), "percentage point")
    if row["estimate"]:
        points += f" in favour of {first if row['estimate'] > 0 else second}"
    return f"{points} (95 % interval: {interval})"


def _with_unit(number: str, unit: str) -> str:
    """Append the unit to a number without its sign."""
    size = number.removeprefix("-")
    return f"{size} {unit}" if size == "1" else f"{size} {unit}s"


def advise_retraining(setting: str = "", first: str = "") -> str:
    """Return the step that advises training differently.

    `first` is an alternative to mention before the others; `setting` is the setting that selects differential privacy.
    """
    ways = f"{first}, or to " if first else ""
    settings = ""
    if setting:
        settings = f" (`{setting}`; the smaller epsilon, the stricter the limit)"
    return (
        f"Ask the technical team to {ways}train for fewer epochs (passes over the data) or with {PRIVACY}. Then audit "
        f"again{settings}."
    )


def state_rarity(p: float, models: str, reaction: str) -> str:
    """State how many of 1,000 models without memory show such a result, for the p-value of a finding."""
    return f"{RARITY} {models}, {number_per_thousand(p)} would {reaction}."


def number_per_thousand(share: float) -> str:
    """Format a share as a whole number per thousand: `about 3`, or `fewer than 1`."""
    if 1000 * share >= 1:
        return f"about {1000 * share:.0f}"
    return "fewer than 1"


def steps_of_null(answer: str, audit: str) -> tuple[str, ...]:
    """Return the next steps after a control run; `audit` are the settings of the actual audit."""
    proper = f"To learn whether models memorise their training data, run the actual audit (`{audit}`)."
    if answer == "memorised":
        return (
            "This is a false alarm and discloses no data. Repeat the control run with two other random seeds: false "
            "alarms should be at most as frequent as stated above (`seed=1`, `seed=2`).",
            proper,
        )
    return ("Keep this page with that of the audit: it shows the result when nothing can be memorised.", proper)
