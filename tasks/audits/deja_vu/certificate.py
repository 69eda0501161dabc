"""The answer for somebody who knows no machine learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audit import Verdict
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.verdict import ERROR, ERROR_OF_GIVEN, LEVEL, NOT_ALIKE, shown
from tasks.certificate import Boundary, Certificate, Finding, line_of
from tasks.summaries import p_in_words

Row = Mapping[str, Any]
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
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    score = next((rows[name] for name in verdict.rows if name in rows), None)
    boundaries = (
        Boundary(0.0, "memorised only if the whole interval lies above"),
        Boundary(config.negligible, "not seen only if the whole interval lies below"),
    )
    what = "more objects named rightly for having been trained on, as a share"
    given = config.given.there
    return Certificate(
        asked=(
            "Does a model that learnt pictures without labels remember which object was in front of which background?"
        ),
        findings=(
            Finding(
                verdict.answer,
                in_plain_words(config, score, verdict),
                line_of(score, what, boundaries=boundaries),
            ),
        ),
        rule=(
            f"Memorised: the share is above 0 by a randomisation test (one side, p at most {LEVEL:g}), and so is its "
            f"95 % interval. Not seen: the interval lies below {config.negligible:g}. "
            + (f"Not judged: the reference tells the two sets apart, too (p at most {NOT_ALIKE:g}). " if given else "")
            + "Undecided: else."
        ),
        error=f"{ERROR_OF_GIVEN if given else ERROR}.",
        beyond=verdict.limits,
        steps=steps(verdict.answer),
    )


def in_plain_words(config: DejaVu, score: Row | None, verdict: Verdict) -> str:
    if score is None or score["estimate"] is None:
        return verdict.sentence
    more = 100 * score["estimate"]
    which = "pictures" if config.confident == 100 else f"the {config.confident} % of pictures that it is surest of"
    told = (
        f"{shown(config).capitalize()}, the model names the object of {which} rightly in {abs(more):.2g} of 100 cases "
        f"{'more' if more >= 0 else 'less'} often than a model that never saw them"
    )
    p = "" if score["p_value"] is None else f"; {p_in_words(score['p_value'])}"
    return f"{told} (95 % interval {100 * score['low']:.2g} to {100 * score['high']:.2g}{p})."


def steps(answer: str) -> tuple[str, ...]:
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
