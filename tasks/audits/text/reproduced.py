"""The share of documents, secrets or identifiers that models reproduce verbatim, and the list of those found.

Secrets and identifiers are listed by number and position only, so that a page can be shared without revealing them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.continuations import BEYOND, BY_CONTROL, BY_TRAINED, GREEDY, SHARE
from tasks.audits.text.plain_words import interval_per_hundred, share_line
from tasks.audits.text.question import Continued, Identifiers, Insertions, Secrets
from tasks.audits.text.secrets.ranks import UNEVEN
from tasks.contract.certificate import Finding, number_per_hundred, part_of
from tasks.contract.summaries import Row, numerator, p_in_words, row_name
from tasks.contract.verdict import Answer, Meaning

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
REPRODUCTION: Mapping[Answer, Meaning] = {
    REPRODUCED: Meaning("models reproduce texts word for word because they were trained on them", "accused"),
    NOT_REPRODUCED: Meaning(
        "models do not reproduce the texts word for word more often than models that never saw them"
    ),
}
MOST_NAMED = 20  # number of secrets or identifiers that are listed
Identity = tuple[int | None, int]  # identifies a secret or an identifier within a run


@dataclass(frozen=True)
class Copies:
    """Summary rows of the shares reproduced greedily: by trained models, by control models, and the difference.

    `control` and `difference` are None if there are no control models.
    """

    trained_models: Row
    control: Row | None
    difference: Row | None


def read_copies(rows: Mapping[tuple[str, str], Row]) -> Copies | None:
    """Read the shares from the rows of a summary. Returns None if no model continued a text."""
    trained_row = rows.get(row_name(SHARE, way=GREEDY, by=BY_TRAINED))
    control = rows.get(row_name(SHARE, way=GREEDY, by=BY_CONTROL))
    if trained_row is None:
        return None
    return Copies(trained_row, control, rows.get(row_name(BEYOND, way=GREEDY)))


def describe_copies(question: Continued, copies: Copies | None) -> str:
    """State the share of documents that trained models reproduce, and the share for control models.

    Returns an empty string if no document is long enough.
    """
    if copies is None or copies.control is None or copies.difference is None or copies.difference["low"] is None:
        return ""
    difference = copies.difference
    return (
        f"{_explain_copies(question, copies)} The difference is {difference['estimate']:.3f} (95 % interval "
        f"{difference['low']:.3f} to {difference['high']:.3f})."
    )


def _explain_copies(question: Continued, copies: Copies) -> str:
    assert copies.control is not None
    task = (
        f"Given its first {question.prefix} tokens (words or parts of words), a model reproduces a document if it "
        f"continues with exactly the next {question.suffix}."
    )
    trained_models = copies.trained_models
    if isinstance(question, Insertions):
        return (
            f"The model reproduces {part_of(trained_models['estimate'], trained_models['n'])} inserted documents word "
            f"for word, and the model that was trained without them {number_per_hundred(copies.control['estimate'])} % "
            f"of them. {task}"
        )
    return (
        f"On average over {trained_models['n']:,} documents, {number_per_hundred(trained_models['estimate'])} % of the "
        "models that were trained on a document reproduce it word for word, and "
        f"{number_per_hundred(copies.control['estimate'])} % of the models that were not. {task}"
    )


def reproduction_findings(question: Continued, copies: Copies | None) -> tuple[Finding, ...]:
    """Return a finding on whether documents are reproduced. Returns no finding if no document is long enough."""
    if not describe_copies(question, copies) or copies is None or copies.difference is None:
        return ()
    answer = REPRODUCED if copies.difference["low"] > 0 else NOT_REPRODUCED
    label = "difference between these shares, in percentage points (above 0: reproduced more often after training)"
    line = share_line(copies.difference, label, "no difference")
    return (Finding(answer, _explain_copies(question, copies), line, target="reproduction"),)


def describe_extraction(copies: Copies, things: str) -> str:
    """State the share of secrets or identifiers that is reproduced, and its p-value."""
    trained_row = copies.trained_models
    control = copies.control
    difference = copies.difference
    comparison = ""
    if control is not None and difference is not None:
        comparison = (
            f", and control models {number_per_hundred(control['estimate'])} of 100 (difference "
            f"{difference['estimate']:.3f}, 95 % interval {difference['low']:.3f} to {difference['high']:.3f})"
        )
    reproduced = f"{numerator(trained_row):,} of {trained_row['n']:,} {things}"
    return (
        f"Given the preceding text, models reproduce {reproduced} from their training texts word for word (95 % "
        f"interval {trained_row['low']:.3f} to {trained_row['high']:.3f}, {p_in_words(trained_row['p_value'])})"
        f"{comparison}; guessing succeeds at most once in "
        f"{round(1 / trained_row['null']):,}."
    )


def extraction_finding(copies: Copies, things: str, level: float) -> Finding:
    """Return a finding on whether secrets are reproduced, for readers without a machine-learning background."""
    trained_row = copies.trained_models
    if trained_row["p_value"] <= level:
        answer = REPRODUCED
    else:
        answer = NOT_REPRODUCED
    comparison = ""
    if copies.control is not None:
        comparison = (
            f" A model that never saw them completes {part_of(copies.control['estimate'], copies.control['n'])}."
        )
    sentence = (
        f"Given the text before them, the model completes {numerator(trained_row):,} of "
        f"{trained_row['n']:,} {things} word for word{interval_per_hundred(trained_row)}.{comparison} A guess "
        f"succeeds at most once in {round(1 / trained_row['null']):,} attempts."
    )
    line = share_line(trained_row, f"{things} completed word for word, in %", "by guessing, at most")
    return Finding(answer, sentence, line, target="reproduction")


def name_found(config: Text, read_table: Callable[[str], pa.Table]) -> str:
    """List the secrets or identifiers that are found, by number. Returns an empty string if there are none."""
    ranked = read_table("identifiers" if isinstance(config.question, Identifiers) else "secrets").to_pylist()
    reproduced_by_identity = _greedy_answers(read_table)
    found_items = []
    for index, item in enumerate(ranked):
        if item["found"]:
            found_items.append((item, reproduced_by_identity.get(identity(item, index))))
    found_items.sort(key=lambda pair: rank_surest(pair[0]))
    if not found_items or any(item.get("control", 1.0) <= UNEVEN for item, _ in found_items):
        return ""  # the ranks of identifiers that are not uniformly random carry no information
    names = "; ".join(describe_found(config, item, reproduced) for item, reproduced in found_items[:MOST_NAMED])
    more = ""
    if len(found_items) > MOST_NAMED:
        more = f"; and {len(found_items) - MOST_NAMED:,} more"
    size = found_items[0][0]["candidates"]
    thing = "a secret"
    if isinstance(config.question, Identifiers):
        thing = "an identifier"
    return (
        f"Found: {names}{more}. A model that never saw {thing} would rank it first of {size:,} only once in {size:,} "
        "times."
    )


def _greedy_answers(read_table: Callable[[str], pa.Table]) -> Mapping[Identity, bool]:
    """Return whether each secret or identifier is reproduced. Empty if no model continued a text."""
    rows = [row for row in read_table("extraction").to_pylist() if row["way"] == GREEDY]
    return {identity(row, index): row["reproduced"] for index, row in enumerate(rows)}


def identity(item: Row, index: int) -> Identity:
    """Return the pair and number of a secret, or the index of an identifier among those tested."""
    if item.get("secret") is not None:
        return (item["pair"], item["secret"])
    return (None, index)


def rank_surest(item: Row) -> tuple[float, int]:
    """Return the sort key of found items, which puts the surest first."""
    return item["q_value"], item["rank"]


def name_thing(config: Text, item: Row) -> str:
    """Return the number of a secret, or the format and text number of an identifier."""
    match config.question:
        case Identifiers():
            return f"{item['format']} of text {item['row']}"
        case Secrets(pairs=pairs) if pairs > 1:
            return f"secret {item['secret']} of pair {item['pair']}"
    return f"secret {item['secret']}"


def describe_found(config: Text, item: Row, reproduced: bool | None) -> str:
    """Describe a found item: its name, repetition count and rank, and whether it is reproduced."""
    column = "repetitions"
    if isinstance(config.question, Identifiers):
        column = "occurrences"
    repetitions = ""
    if not config.is_null:
        times = item.get(column)
        if times == 1:
            repetitions = "in the texts once, "
        else:
            repetitions = f"in the texts {times} times, "
    reproduction = ""
    if reproduced is not None:
        reproduction = ", not reproduced"
        if reproduced:
            reproduction = ", reproduced word for word"
    return f"{name_thing(config, item)} ({repetitions}rank {item['rank']} of {item['candidates']}{reproduction})"
