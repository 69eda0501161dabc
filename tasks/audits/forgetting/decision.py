"""Decision rules for one target, from its randomisation test, its share of D_Q and its likeness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.audits.forgetting import explanations
from tasks.audits.forgetting.held_share import UNLIKE
from tasks.audits.forgetting.target_evidence import LEVEL, MAX_PASSED, TargetEvidence, format_percent
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import p_in_words
from tasks.contract.ties import describe_tied_evidence, tie_rule
from tasks.contract.verdict import NOT_ASSESSABLE, Answer
from tasks.external.causes import ALTERED, INTERFACE, REPEATS, list_causes, unlike_causes
from tasks.programs.config import Program

DecisionScore = Literal["right", "undecided", "wrong"]
# The test is exact if the control set was drawn at random. The audit did not draw control images that a user named.
DRAWN = ", provided that D_Q and the control set were drawn from one pool at random"


def thresholds(config: Any) -> Mapping[str, str]:
    """Return the numbers in the rule texts, and the test's condition if the control set was not drawn here."""
    return {
        "level": f"{LEVEL:g}",
        "per_thousand": f"{1000 * LEVEL:g}",
        "unlike": f"{UNLIKE:g}",
        "negligible": format_percent(config.negligible),
        "passed": format_percent(MAX_PASSED),
        "drawn": "" if config.query.named_control is None else DRAWN,
    }


CAUSES = unlike_causes("images of the control set")
DENIAL_CAUSES = list_causes(
    "images of the control set were trained on",
    INTERFACE,
    "it was trained differently, such as to deny D_Q",
    ALTERED,
)
# Likely explanation, by the check that a target fails and by whether its number is larger.
DIFFERENCES: Mapping[tuple[str, bool], str] = {
    ("accuracy", True): "it knows the domain better, from more or other data, longer training or another design",
    ("accuracy", False): f"it knows the domain less well; {CAUSES}",
    ("agreement", True): "it agrees with them more than they agree with each other, as an ensemble does",
    ("agreement", False): f"it finds other images difficult; {CAUSES}",
}


def _describe_failed_check(_config: Any, evidence: TargetEvidence) -> str:
    assert evidence.failed_check is not None
    name, check = evidence.failed_check
    assert check.p is not None
    return (
        f"its {name} on the control set is {check.value:.3g}, that of calibration models {check.expected:.3g} "
        f"({p_in_words(check.p)}): {DIFFERENCES[name, check.is_larger]}"
    )


def _describe_denial(_config: Any, evidence: TargetEvidence) -> str:
    assert evidence.p_other is not None
    return (
        f"it is less certain about D_Q than about the control set ({p_in_words(evidence.p_other)}), unlike models "
        f"that saw neither; {DENIAL_CAUSES}"
    )


def _describe_recognition(_config: Any, evidence: TargetEvidence) -> str:
    trial = evidence.recognition
    assert trial is not None
    return (
        f"nothing binds its table to a model: {trial.passed} of {trial.tried} simulated owners who hold "
        f"{format_percent(trial.share)} of D_Q and submit a clean model's answers about it would pass"
    )


def _describe_open_share(_config: Any, evidence: TargetEvidence) -> str:
    limit = evidence.upper_limit
    if limit is None:
        return "too few models show how effects vary"
    largest = "any share" if limit >= 1 else f"up to {100 * limit:.3g} %"
    return f"it may hold {largest} of D_Q, more than {100 * evidence.negligible:.3g} %"


RUN_AGAIN = "Run the same command again to compute the missing results; stored results are reused."
MORE = (
    "Request answers about more images, or train at least 10 models of each kind; stored models are reused "
    "(`replicates=10`)."
)
RECIPE = (
    "Ask the owner for the network, the training recipe and the number of training images of the domain, and train the "
    "comparison models in the same way"
)
OWN_DATA = (
    f"{RECIPE}. If the owner's images are not yours, give each comparison model its own random images: the owner's "
    "number of images, from a pool of several times that size (`network=... epochs=... calibration.data=... "
    "calibration_share=0.25`)."
)
OTHER_SHARE = f"{RECIPE}, on the owner's number of images (`network=... epochs=... calibration_share=...`)."


def _advise_own_data(config: Any, _evidence: TargetEvidence) -> tuple[str, ...]:
    return (OWN_DATA if config.question.calibration_share == 1 else OTHER_SHARE,)


def _advise_all_classes(config: Any, _evidence: TargetEvidence) -> tuple[str, ...]:
    if isinstance(config.question.training, Program):
        return (
            "Return the probabilities of all classes from your program, with the true class in a column `label` of "
            "`scores.csv` or `scores.parquet` if only the program holds the records.",
        )
    return ("Request a table with the confidences of all classes, and audit that table.",)


def _give_no_reason(_config: Any, _evidence: TargetEvidence) -> str:
    return ""


def _describe_test(evidence: TargetEvidence) -> str:
    """Format the p-value and the number of models."""
    assert evidence.p is not None
    return f"{p_in_words(evidence.p)}, {evidence.models} model{'s' if evidence.models > 1 else ''}"


def _describe_knowledge(_config: Any, evidence: TargetEvidence) -> str:
    sentence = f"more certain about D_Q than about the control set ({_describe_test(evidence)})"
    if not evidence.lower_limit:
        return sentence
    return f"{sentence}, as are models that hold at least {format_percent(evidence.lower_limit)} of D_Q"


def describe_no_knowledge(_config: Any, evidence: TargetEvidence) -> str:
    """Describe the test's result for a target that the test does not accuse. Empty if there was no test."""
    if evidence.p is None:
        return ""
    return f"no more certain about D_Q than about the control set ({_describe_test(evidence)})"


def describe_limit(config: Any, evidence: TargetEvidence) -> str:
    limit = format_percent(evidence.upper_limit or 0.0)
    return f"{describe_no_knowledge(config, evidence)}; holds at most {limit} of D_Q (95 % limit)"


# The accusation comes first, since its test is exact for any model. The test compares means over images whose scores
# vary widely. It therefore needs no smallest relevant effect: an effect too small to matter is not found.
# `because` is a clause for the table of decisions and the verdict. It gives the reason for *not assessable* or
# *undecided*.
RULES = Rules[TargetEvidence](
    (
        Case(
            "not forgotten",
            "a model is more certain about D_Q than about the control set, images of the same source that were never "
            "used in training (one-sided randomisation test, p at most {level} over all models together)",
            lambda evidence: evidence.p is not None and evidence.p <= LEVEL,
            "If no audited model saw D_Q, at most {per_thousand} of 1,000 audits report any of them as not forgotten, "
            "regardless of their other training data{drawn}.",
            # Measured with 1,500 draws in each of several MNIST settings: docs/forgetting_reference.md, "Error rates".
            further_error="If a draw of control images accused one innocent model, it also accused a second one in "
            "55 % of cases (models of other data of the domain), 67 % (models of other digits) or 7 % (models of the "
            "comparison data).",
            because=_give_no_reason,
            describe=_describe_knowledge,
            explain=explanations.explain_knowledge,
            line=explanations.draw_chance,
        ),
        Case(
            "undecided",
            "there are no answers of the model",
            lambda evidence: not evidence.models,
            because=lambda _config, _evidence: "there are no answers of the model",
            explain=explanations.explain_missing_answers,
            steps=(RUN_AGAIN,),
        ),
        Case(
            NOT_ASSESSABLE,
            "there is no control set, or no calibration model to compare the model with",
            lambda evidence: evidence.p is None,
            because=lambda _config, _evidence: (
                "without a control set and calibration models, knowing D_Q cannot be distinguished from knowing images "
                "of its kind"
            ),
            explain=explanations.explain_missing_control,
            steps=(RUN_AGAIN,),
        ),
        Case(
            NOT_ASSESSABLE,
            "an image that was sent twice received two answers",
            lambda evidence: evidence.disagreeing > 0,
            because=lambda _config, evidence: (
                f"{evidence.disagreeing} of {evidence.repeats} images that were sent twice received two answers; "
                f"{REPEATS}"
            ),
            explain=explanations.explain_disagreement,
            steps=("Request one table with the answers of a single model about every image, and audit that table.",),
        ),
        Case(
            NOT_ASSESSABLE,
            "it gives no confidences of the other classes",
            lambda evidence: evidence.accuracy.value is None,
            because=lambda _config, _evidence: (
                "it gives no confidences of the other classes, so its accuracy on the control set is unknown"
            ),
            explain=explanations.explain_missing_classes,
            steps=_advise_all_classes,
        ),
        tie_rule(
            describe=None,
            because=describe_tied_evidence,
            explain=explanations.explain_ties,
            steps=("Request confidences with all their digits, or the model's file, and audit those.",),
        ),
        Case(
            NOT_ASSESSABLE,
            "its accuracy on the control set, or its agreement with calibration models there, differs from that of "
            "calibration models (p below {unlike} each)",
            lambda evidence: evidence.failed_check is not None,
            because=_describe_failed_check,
            explain=explanations.explain_failed_check,
            steps=_advise_own_data,
        ),
        Case(
            NOT_ASSESSABLE,
            "it is less certain about D_Q than about the control set (p below {unlike}), unlike models that saw "
            "neither",
            lambda evidence: evidence.p_other is not None and evidence.p_other < UNLIKE,
            because=_describe_denial,
            explain=explanations.explain_denial,
            steps=(
                "Ask the owner how the model was changed after its training, and request a model that was trained "
                "without the data.",
            ),
        ),
        Case(
            NOT_ASSESSABLE,
            "it holds at most {negligible} of D_Q, but more than {passed} of simulated owners who hold D_Q and submit "
            "a clean model's answers about it would pass as well",
            lambda evidence: evidence.is_clear and evidence.could_be_made_up,
            scope="tables that nothing binds to a model",
            applies=lambda config: bool(config.has_unbound_tables),
            because=_describe_recognition,
            explain=explanations.explain_recognition,
            steps=(
                "Bind the table to the model in use, and state how: record the SHA-256 of the model's file before the "
                "images are handed out, and make spot checks (`given.bound_by=...`).",
                "Or audit the model's file (`given.models=...`).",
                "Or also train models on all of the data, to exclude owners whose models know all the data "
                "(`partial=0.05,0.1,0.25,1`).",
            ),
        ),
        Case(
            "forgotten",
            "it holds at most {negligible} of D_Q (95 % limit)",
            lambda evidence: evidence.is_clear,
            "Of 100 models that hold more than {negligible} of D_Q and were trained like the comparison models, at "
            "most 5 are reported as forgotten.",
            because=_give_no_reason,
            describe=describe_limit,
            explain=explanations.explain_limit,
        ),
        undecided(because=_describe_open_share, explain=explanations.explain_open_share, steps=(MORE,)),
    ),
    thresholds,
)


@dataclass(frozen=True)
class Decision:
    """The rule case that applies to the evidence."""

    case: Case[TargetEvidence]
    evidence: TargetEvidence

    @property
    def answer(self) -> Answer:
        return self.case.answer

    @property
    def reason(self) -> str | None:
        """Why the target is not assessable or undecided, as a clause. None for the other answers."""
        return self.case.because(None, self.evidence) or None


def decide(config: Any, evidence: TargetEvidence) -> Decision:
    return Decision(RULES.decide(config, evidence), evidence)


def score_decision(answer: Answer, share: float | None, negligible: float) -> DecisionScore | None:
    """Compare the answer with the share of D_Q that the target was trained on. None if the share is unknown."""
    if share is None:
        return None
    if answer in ("undecided", NOT_ASSESSABLE):
        return "undecided"
    if answer == "not forgotten":
        is_right = share > 0
    else:
        is_right = share <= negligible
    return "right" if is_right else "wrong"


def holm_adjustment(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values over the targets, so that at most LEVEL of runs without D_Q have any p at most LEVEL.

    Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for step, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = largest
    return adjusted
