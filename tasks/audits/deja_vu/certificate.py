"""The audit's answer for somebody who knows no machine learning, and its symbols explained."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.deja_vu.answer import (
    DISAGREES,
    RULES,
    Evidence,
    describe_refusal,
    describe_view,
    is_given,
    read_evidence,
)
from tasks.audits.deja_vu.config import DejaVu
from tasks.contract.certificate import (
    Boundary,
    Certificate,
    Finding,
    NumberLine,
    line_of,
    number_per_hundred,
    steps_of_null,
)
from tasks.contract.summaries import index_rows, p_in_words
from tasks.contract.ties import NOT_JUDGED
from tasks.contract.verdict import Answer, Verdict

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
NULL = "This is a null: neither model was trained on the pictures that are asked about. "


def certificate(config: DejaVu, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for somebody who knows no machine learning."""
    evidence = read_evidence(config, index_rows(summary))
    sentence = verdict.sentence if evidence is None else describe_lead(config, evidence, verdict.answer)
    told, line = f"{NULL if config.is_null else ''}{sentence}", number_line(config, evidence, verdict.answer)
    return RULES.certify(
        config,
        verdict,
        "Does a model that learnt pictures without labels remember which object was in front of which background?",
        (Finding(verdict.answer, told, line),),
        next_steps(config, verdict.answer, evidence),
    )


def number_line(config: DejaVu, evidence: Evidence | None, answer: Answer) -> NumberLine | None:
    """The score; None where it is not judged, since it may be of anything then."""
    if evidence is None or answer == NOT_JUDGED:
        return None
    if is_given(config):
        what = "more objects named rightly than by the reference, less the same of held-out pictures, as a share"
    elif config.is_null:
        what = "more objects named rightly by one model than by the other, neither trained on them, as a share"
    else:
        what = "more objects named rightly for having been trained on, as a share"
    boundaries = (
        Boundary(0.0, "memorised only if the whole interval lies above"),
        Boundary(config.negligible, "not seen only if the whole interval lies below", clears=True),
    )
    return line_of(evidence.score, what, boundaries=boundaries)


def describe_lead(config: DejaVu, evidence: Evidence, answer: Answer) -> str:
    """The score in words that need no statistics, with its interval and p."""
    score = evidence.score
    p = "" if score["p_value"] is None else f"; {p_in_words(score['p_value'])}"
    interval = (
        f"(95 % interval {number_per_hundred(score['low'])} to "
        f"{number_per_hundred(score['high'])} percentage points{p})"
    )
    refusal = describe_refusal(RULES.decide(config, evidence), evidence) if answer == NOT_JUDGED else ""
    why = f" {refusal}" if refusal else ""
    view, points = describe_view(config).capitalize(), f"{number_per_hundred(abs(score['estimate']))} percentage points"
    points += " higher" if score["estimate"] >= 0 else " lower"
    surest = f"the {config.confident} % of pictures where {'each' if is_given(config) else 'it'} is most confident"
    which = "all pictures" if config.confident == 100 else surest
    if is_given(config):
        lead = (
            f"{view}, the model and its reference name the object. On {which}, the model's lead in accuracy over the "
            f"reference is {points} for the pictures that it was trained on than for held-out ones"
        )
    elif config.is_null:
        lead = f"{view}, a model names the object. On {which}, its accuracy is {points} than another’s"
    else:
        lead = (
            f"{view}, the model names the object. On {which}, its accuracy is {points} than that of a model that never "
            "saw them"
        )
    return f"{lead} {interval}.{why}"


def next_steps(config: DejaVu, answer: Answer, evidence: Evidence | None) -> tuple[str, ...]:
    if config.is_null:
        return steps_of_null(answer, "trained=own")
    if answer == "memorised":
        return (
            "Treat what stood in front of the backgrounds as disclosed to whoever can use the model.",
            "Train for fewer epochs or with a shorter projector, or give away later layers alone, and audit again.",
        )
    if answer == "not seen":
        return ("Keep this page with the files that it names; ask at other layers, too: layers=0,1,2,3.",)
    if answer == NOT_JUDGED and evidence is not None and RULES.decide(config, evidence) is DISAGREES:
        return (
            "Hand out whole pictures among the crops (given.repeated=100, in engram probes and in the run), and audit "
            "the table that comes back.",
            "Ask for the encoder's file, or ask the deployed encoder yourself.",
        )
    if answer == NOT_JUDGED and evidence is not None and evidence.reference_p is None:
        return ("Run the same command again, so that the reference is tested on both sets.",)
    if answer == NOT_JUDGED:
        return ("Give held-out pictures that were drawn together with the training pictures, and ask again.",)
    return ("Attack more pictures (per_class, attacked), or train again with another seed.",)
