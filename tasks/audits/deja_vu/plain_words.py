"""The audit's answer for readers without a machine-learning background, and its symbols explained."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.evidence import Evidence, is_given
from tasks.audits.deja_vu.sentences import describe_view
from tasks.contract.certificate import Boundary, NumberLine, line_of, number_per_hundred
from tasks.contract.summaries import p_in_words

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
ASKED = "Does a model that learnt pictures without labels remember which object was in front of which background?"
NOTICE_OF_NULL = "This is a null: neither model was trained on the pictures that are asked about. "

SHARE_LESS = (
    "Treat what stood in front of the backgrounds as disclosed to whoever can use the model.",
    "Train for fewer epochs or with a shorter projector, or give away later layers alone, and audit again.",
)
OTHER_LAYERS = ("Keep this page with the files that it names; ask at other layers, too: layers=0,1,2,3.",)
MORE_PICTURES = ("Attack more pictures (per_class, attacked), or train again with another seed.",)
REPEATED_PICTURES = (
    "Hand out whole pictures among the crops (given.repeated=100, in engram probes and in the run), and audit the "
    "table that comes back.",
    "Ask for the encoder's file, or ask the deployed encoder yourself.",
)
UNTIED_EMBEDDINGS = (
    "Check the encoder whose embeddings are equal: its output is constant, or was rounded. Audit one whose embeddings "
    "differ between pictures, with all their digits.",
)
SAME_COMMAND = ("Run the same command again, so that the reference is tested on both sets.",)
OTHER_HELD_OUT = ("Give held-out pictures that were drawn together with the training pictures, and ask again.",)


def mend_sets(_config: DejaVu, evidence: Evidence) -> tuple[str, ...]:
    """What to do about two sets that the reference distinguishes, or was not tested on."""
    return SAME_COMMAND if evidence.reference_p is None else OTHER_HELD_OUT


def draw_score(config: DejaVu, evidence: Evidence) -> NumberLine | None:
    """The score on a line."""
    if is_given(config):
        label = "more objects named rightly than by the reference, less the same of held-out pictures, as a share"
    elif config.is_null:
        label = "more objects named rightly by one model than by the other, neither trained on them, as a share"
    else:
        label = "more objects named rightly for having been trained on, as a share"
    boundaries = (
        Boundary(0.0, "memorised only if the whole interval lies above"),
        Boundary(config.negligible, "not detected only if the whole interval lies below", clears=True),
    )
    return line_of(evidence.score, label, boundaries=boundaries)


def explain_score(config: DejaVu, evidence: Evidence) -> str:
    """The score in words that need no statistics, with its interval and p."""
    score = evidence.score
    low, high, size = (number_per_hundred(value) for value in (score["low"], score["high"], abs(score["estimate"])))
    p = "" if score["p_value"] is None else f"; {p_in_words(score['p_value'])}"
    points = f"{size} percentage points {'higher' if score['estimate'] >= 0 else 'lower'}"
    return f"{describe_lead(config, points)} (95 % interval {low} to {high} percentage points{p})."


def describe_lead(config: DejaVu, points: str) -> str:
    """The comparison of accuracies with the difference `points`, and the images that it counts."""
    view = describe_view(config).capitalize()
    surest = f"the {config.confident} % of pictures where {'each' if is_given(config) else 'it'} is most confident"
    which = "all pictures" if config.confident == 100 else surest
    if is_given(config):
        return (
            f"{view}, the model and its reference name the object. On {which}, the model's lead in accuracy over the "
            f"reference is {points} for the pictures that it was trained on than for held-out ones"
        )
    if config.is_null:
        return f"{view}, a model names the object. On {which}, its accuracy is {points} than another’s"
    return (
        f"{view}, the model names the object. On {which}, its accuracy is {points} than that of a model that never "
        "saw them"
    )
