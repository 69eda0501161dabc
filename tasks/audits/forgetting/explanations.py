"""Page one of the certificate: the finding on one target for readers without a background in statistics.

There is one function of (config, evidence) for each case of `decision.RULES`. P-values, symbols and method names do not
appear here, only in the verdict on page two.
"""

from __future__ import annotations

from typing import Any

from tasks.audits.forgetting.target_evidence import LEVEL, TargetEvidence, format_percent
from tasks.contract.certificate import Boundary, NumberLine, number_per_hundred, state_rarity

DETAILS = "Details and likely causes are on page 2."
DIFFERENCES = {
    ("accuracy", True): "it knows this kind of image better",
    ("accuracy", False): "it knows this kind of image less well",
    ("agreement", True): "its answers are closer to theirs than those of any single model, as an average of several "
    "models would be",
    ("agreement", False): "it finds other images difficult than they do",
}


def explain_knowledge(_config: Any, evidence: TargetEvidence) -> str:
    assert evidence.p is not None
    size = ""
    if evidence.lower_limit:
        share = format_percent(evidence.lower_limit)
        size = f"The difference indicates that it was trained on at least {share} of the data. "
    return (
        f"The model still recognises the data: it is more certain about these images than about control images. {size}"
        f"{state_rarity(evidence.p, 'models that never saw the data', 'show such a difference')}"
    )


def explain_missing_answers(_config: Any, _evidence: TargetEvidence) -> str:
    return "There are no answers of this model yet."


def explain_missing_control(_config: Any, _evidence: TargetEvidence) -> str:
    return (
        "The audit cannot tell whether a model knows these images or only this kind of image: it lacks control images "
        "(of the same source, never used in training) or comparison models."
    )


def explain_disagreement(_config: Any, evidence: TargetEvidence) -> str:
    return (
        f"{evidence.disagreeing} of {evidence.repeats} images that were submitted twice received two different "
        f"answers, so the answers cannot be judged. {DETAILS}"
    )


def explain_missing_classes(_config: Any, _evidence: TargetEvidence) -> str:
    return (
        "The model’s answers for the other classes are unknown. Without them, the audit cannot check that the model is "
        "comparable with the comparison models."
    )


def explain_ties(_config: Any, evidence: TargetEvidence) -> str:
    assert evidence.tied is not None
    return (
        f"{number_per_hundred(evidence.tied['estimate'])} of 100 pairs of answers are equal, so the answers cannot be "
        "ranked: the model always answers alike, or its numbers were rounded."
    )


def explain_failed_check(_config: Any, evidence: TargetEvidence) -> str:
    assert evidence.failed_check is not None
    name, check = evidence.failed_check
    sentence = f"The model is not comparable with the comparison models: {DIFFERENCES[name, check.is_larger]}."
    if name == "accuracy":
        assert check.value is not None
        assert check.expected is not None
        sentence += (
            f" It classifies {100 * check.value:.3g} % of the control images correctly, they {100 * check.expected:.3g}"
            " % on average."
        )
    return f"{sentence} {DETAILS}"


def explain_denial(_config: Any, _evidence: TargetEvidence) -> str:
    return (
        "The model is less certain about the data than about control images. A model that never saw either shows no "
        f"such difference. {DETAILS}"
    )


def explain_recognition(_config: Any, evidence: TargetEvidence) -> str:
    trial = evidence.recognition
    assert trial is not None
    return (
        "Nothing proves that the owner’s table comes from the model in use. In a simulation, "
        f"{trial.passed} of {trial.tried} owners whose models hold {format_percent(trial.share)} of the data passed "
        "with another model’s answers about it."
    )


def explain_limit(_config: Any, evidence: TargetEvidence) -> str:
    return (
        "The model shows no sign of the data: it is no more certain about these images than about control images. It "
        f"holds at most {format_percent(evidence.upper_limit or 0.0)} of the data (95 % confidence); a model that "
        f"holds at most {format_percent(evidence.negligible)} counts as forgotten."
    )


def explain_open_share(_config: Any, evidence: TargetEvidence) -> str:
    sentence = "No sign of the data was found, but the audit was too small to rule it out:"
    limit = evidence.upper_limit
    if limit is None:
        return f"{sentence} too few comparison models show how results vary."
    largest = "any part" if limit >= 1 else f"up to {100 * limit:.3g} %"
    return (
        f"{sentence} the model may hold {largest} of the data (95 % confidence); to count as forgotten, it must hold "
        f"at most {format_percent(evidence.negligible)}."
    )


def draw_chance(_config: Any, evidence: TargetEvidence) -> NumberLine:
    """Draw how many of 1,000 innocent models would look like the target."""
    assert evidence.p is not None
    boundary = Boundary(1000 * LEVEL, "or fewer: reported as not forgotten")
    return NumberLine(
        "of 1,000 models that never saw the data, how many would show such a difference",
        1000 * evidence.p,
        null=1000.0,
        null_words="all of them: no difference",
        boundaries=(boundary,),
        logarithmic=True,
    )
