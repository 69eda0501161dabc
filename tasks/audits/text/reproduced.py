"""Which texts come out word for word, in words: how many documents or secrets, and which of those that are found.

Secrets and identifiers are named by their numbers and places alone, so that a page that is passed on holds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.continuations import BEYOND, GREEDY, SHARE, TOLD, TWIN
from tasks.audits.text.question import Continued, Identifiers, Secrets
from tasks.audits.text.secrets.ranks import UNEVEN
from tasks.contract.certificate import Finding, chances, number_per_hundred
from tasks.contract.summaries import Row, p_in_words, row_name
from tasks.contract.verdict import Answer, Meaning

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
REPRODUCTION: Mapping[Answer, Meaning] = {
    REPRODUCED: Meaning("models write texts word for word because they were trained on them", "accused"),
    NOT_REPRODUCED: Meaning("texts do not come out word for word more often than by models that never saw them"),
}
MOST_NAMED = 20  # of those that are found
Identity = tuple[int | None, int]  # of a secret or an identifier, within a run


@dataclass(frozen=True)
class Copies:
    """The summary rows of how many texts are written greedily by models that were told them.

    `twin` and `beyond` are those of the models that were not, and of the difference; None where there are none.
    """

    told: Row
    twin: Row | None
    beyond: Row | None


def read_copies(rows: Mapping[tuple[str, str], Row]) -> Copies | None:
    """How many texts come out, from the rows of a summary; None where no model was asked to go on."""
    told, twin = (rows.get(row_name(SHARE, way=GREEDY, by=by)) for by in (TOLD, TWIN))
    return None if told is None else Copies(told, twin, rows.get(row_name(BEYOND, way=GREEDY)))


def describe_copies(asked: Continued, copies: Copies | None) -> str:
    """How much comes out word for word, beside models that never saw it; empty where no document is long enough."""
    if copies is None or copies.twin is None or copies.beyond is None or copies.beyond["low"] is None:
        return ""
    told, twin, beyond = copies.told, copies.twin, copies.beyond
    return (
        f"Given the first {asked.prefix} tokens of a document, a model that was trained on it writes the next "
        f"{asked.suffix} word for word in {number_per_hundred(told['estimate'])} of 100 cases, and one that never saw "
        f"it in {number_per_hundred(twin['estimate'])} (difference {beyond['estimate']:.3f}, 95 % interval "
        f"{beyond['low']:.3f} to {beyond['high']:.3f})."
    )


def reproduction_findings(asked: Continued, copies: Copies | None) -> tuple[Finding, ...]:
    """Whether documents come out; nothing where no document is long enough."""
    told = describe_copies(asked, copies)
    if not told or copies is None or copies.beyond is None:
        return ()
    return (Finding(REPRODUCED if copies.beyond["low"] > 0 else NOT_REPRODUCED, told, target="reproduction"),)


def describe_extraction(evidence: Copies, things: str) -> str:
    """How many secrets, or identifiers, come out after what stands before them, in a sentence."""
    told, twin, beyond = evidence.told, evidence.twin, evidence.beyond
    beside = ""
    if twin is not None and beyond is not None:
        beside = (
            f", and models that were not told them write {number_per_hundred(twin['estimate'])} of 100 (difference "
            f"{beyond['estimate']:.3f}, 95 % interval {beyond['low']:.3f} to {beyond['high']:.3f})"
        )
    return (
        f"Given what stands before them, models that were told {told['n']:,} {things} write "
        f"{number_per_hundred(told['estimate'])} of 100 word for word (95 % interval {told['low']:.3f} to "
        f"{told['high']:.3f}; {p_in_words(told['p_value'])}){beside}; chance alone brings at most one of "
        f"{round(1 / told['null']):,}."
    )


def extraction_finding(evidence: Copies, things: str, level: float) -> Finding:
    """Whether secrets come out, for somebody who knows no machine learning."""
    p_value = evidence.told["p_value"]
    answer = REPRODUCED if p_value <= level else NOT_REPRODUCED
    return Finding(answer, describe_extraction(evidence, things), chances(p_value, level), target="reproduction")


def name_found(config: Text, read: Callable[[str], pa.Table]) -> str:
    """Which secrets, or identifiers, are found, by number, in a sentence that holds none of them; empty without any."""
    ranked = read("identifiers" if isinstance(config.question, Identifiers) else "secrets").to_pylist()
    written = _greedy_answers(read)
    found = [(each, written.get(identity(each, at))) for at, each in enumerate(ranked) if each["found"]]
    found.sort(key=lambda one: rank_surest(one[0]))
    if not found or any(each.get("control", 1.0) <= UNEVEN for each, _ in found):
        return ""  # of identifiers that are not drawn evenly ranks say nothing
    named = "; ".join(describe_found(config, each, reproduced) for each, reproduced in found[:MOST_NAMED])
    more = f"; and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
    return (
        f"Found: {named}{more}. A model that never saw one of them would place it as high by chance alone, as often as "
        "its rank says: one of rank 1 among 500 once in 500 times."
    )


def _greedy_answers(read: Callable[[str], pa.Table]) -> Mapping[Identity, bool]:
    """Whether each secret, or identifier, is written word for word; empty where no model was asked to go on."""
    rows = [each for each in read("extraction").to_pylist() if each["way"] == GREEDY]
    return {identity(each, at): each["reproduced"] for at, each in enumerate(rows)}


def identity(each: Row, at: int) -> Identity:
    """What one is known by: a secret by its pair and number, an identifier by its place among those asked about."""
    return (each["pair"], each["secret"]) if each.get("secret") is not None else (None, at)


def rank_surest(each: Row) -> tuple[float, int]:
    """By what those that are found are sorted, the surest first."""
    return each["q_value"], each["rank"]


def name_thing(config: Text, each: Row) -> str:
    """A secret by its number, or an identifier by its format and text."""
    match config.question:
        case Identifiers():
            return f"{each['format']} of text {each['row']}"
        case Secrets(pairs=pairs) if pairs > 1:
            return f"secret {each['secret']} of pair {each['pair']}"
    return f"secret {each['secret']}"


def describe_found(config: Text, each: Row, reproduced: bool | None) -> str:
    """One that is found: its number, how often it stood in the texts, its rank, and whether it is written."""
    times, verb = each.get("repetitions"), "told"
    if isinstance(config.question, Identifiers):
        times, verb = each["occurrences"], "stands"
    often = "" if config.is_null else f"{verb} once, " if times == 1 else f"{verb} {times} times, "
    says = "" if reproduced is None else ", written word for word" if reproduced else ", not written"
    rank = f"rank {each['rank']} of {each['candidates']}, adjusted p {each['q_value']:.2g}"
    return f"{name_thing(config, each)} ({often}{rank}{says})"
