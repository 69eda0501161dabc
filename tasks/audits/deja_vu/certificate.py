"""The answer for somebody who knows no machine learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.verdict import ERROR, ERROR_OF_GIVEN, LEVEL, NOT_ALIKE, not_alike, of_reference, shown
from tasks.certificate import (
    ELSE,
    Boundary,
    Certificate,
    Finding,
    NumberLine,
    line_of,
    number_per_hundred,
    steps_of_null,
)
from tasks.summaries import index_rows, p_in_words
from tasks.verdict import Verdict

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]
SYMBOLS: Mapping[str, str] = {
    "deja vu score": "the share of objects that the model names rightly of pictures it was trained on, minus that of a "
    "model that was not",
    "A": "the pictures that one model was trained on",
    "B": "the pictures that the other model was trained on, or that were held out",
    "percent": "how many of the pictures count: those on which the nearest public pictures agree most",
    "k": "how many of the nearest public pictures vote",
    "layer": "the layer whose embedding is compared, 0 the backbone’s",
    "target": "the model that was trained on the pictures",
    "reference": "a model that was not trained on them",
}


def certificate(config: DejaVu, summary: pa.Table, verdict: Verdict) -> Certificate:
    rows = index_rows(summary)
    score = next((rows[name] for name in verdict.rows if name in rows), None)
    given = config.given.there
    return Certificate(
        asked=(
            "Does a model that learnt pictures without labels remember which object was in front of which background?"
        ),
        findings=(
            Finding(
                verdict.answer,
                in_plain_words(config, rows, score, verdict),
                line(config, score, verdict),
            ),
        ),
        rule=(
            (
                f"The answer is “not judged” where the reference, too, tells the two sets apart (p at most "
                f"{NOT_ALIKE:g}, two sides). Where it does not, the other answers are given. "
                if given
                else ""
            )
            + "The answer is “memorised” where a randomisation test finds the difference above 0 (one side, p at most "
            f"{LEVEL:g}) and its whole 95 % interval lies above 0. The answer is “not seen” where this does "
            f"not hold and "
            f"the whole interval lies below {100 * config.negligible:g} percentage points. {ELSE}"
        ),
        error=f"{ERROR_OF_GIVEN if given else ERROR}.",
        beyond=verdict.limits,
        steps=steps(config, verdict.answer),
    )


def line(config: DejaVu, score: Row | None, verdict: Verdict) -> NumberLine | None:
    """The score; None where it is not judged, since it may be of anything then."""
    if verdict.answer == "not judged":
        return None
    if config.given.there:
        what = "more objects named rightly than by the reference, less the same of held-out pictures, as a share"
    elif config.is_null:
        what = "more objects named rightly by one model than by the other, neither trained on them, as a share"
    else:
        what = "more objects named rightly for having been trained on, as a share"
    boundaries = (
        Boundary(0.0, "memorised only if the whole interval lies above"),
        Boundary(config.negligible, "not seen only if the whole interval lies below", clears=True),
    )
    return line_of(score, what, boundaries=boundaries)


def in_plain_words(config: DejaVu, rows: Rows, score: Row | None, verdict: Verdict) -> str:
    null = "This is a null: neither model was trained on the pictures that are asked about. " if config.is_null else ""
    if score is None or score["estimate"] is None:
        return f"{null}{verdict.sentence}"
    p = "" if score["p_value"] is None else f"; {p_in_words(score['p_value'])}"
    interval = (
        f"(95 % interval {number_per_hundred(score['low'])} to "
        f"{number_per_hundred(score['high'])} percentage points{p})"
    )
    p_of_reference = of_reference(config, rows) if verdict.answer == "not judged" else None
    why = "" if p_of_reference is None else f" {not_alike(p_of_reference)}"
    return f"{null}{told(config, score['estimate'])} {interval}.{why}"


def told(config: DejaVu, share: float) -> str:
    """What the score is of, with its value, in words."""
    seen, points = shown(config).capitalize(), f"{number_per_hundred(abs(share))} percentage points"
    direction = "higher" if share >= 0 else "lower"
    who = "it" if not config.given.there else "each"
    which = (
        "all pictures"
        if config.confident == 100
        else f"the {config.confident} % of pictures where {who} is most confident"
    )
    if config.given.there:
        return (
            f"{seen}, the model and its reference name the object. On {which}, the model's lead in accuracy over the "
            f"reference is {points} {direction} for the pictures that it was trained on than for held-out ones"
        )
    if config.is_null:
        return f"{seen}, a model names the object. On {which}, its accuracy is {points} {direction} than another’s"
    return (
        f"{seen}, the model names the object. On {which}, its accuracy is {points} {direction} than that of a model "
        "that never saw them"
    )


def steps(config: DejaVu, answer: str) -> tuple[str, ...]:
    if config.is_null:
        return steps_of_null(answer, "trained=own")
    if answer == "memorised":
        return (
            "Treat what stood in front of the backgrounds as disclosed to whoever can use the model.",
            "Train for fewer epochs or with a shorter projector, or give away later layers alone, and audit again.",
        )
    if answer == "not seen":
        return ("Keep this page with the files that it names; ask at other layers, too: layers=0,1,2,3.",)
    if answer == "not judged":
        return ("Give held-out pictures that were drawn together with the training pictures, and ask again.",)
    return ("Attack more pictures (per_class, attacked), or train again with another seed.",)
