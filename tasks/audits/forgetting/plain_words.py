"""Page one of the certificate, for readers without a background in statistics, and the meaning of the symbols.

P-values, symbols and method names do not appear on page one. D_Q is called "the data", D_C "the comparison data".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.decision import DRAWN, RUN_AGAIN
from tasks.audits.forgetting.evidence import Evidence, JudgedTarget
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.target_evidence import LEVEL, format_percent
from tasks.contract.certificate import Boundary, Finding, NumberLine, line_of
from tasks.contract.examined_models import describe_files, describe_tables, describe_trained
from tasks.contract.verdict import NOT_ASSESSABLE, Answer

SYMBOLS: Mapping[str, str] = {
    "D_Q": "the query set: the data that may have been forgotten",
    "D_C": "the calibration set: other data of the same domain, on which comparison models are trained",
    "control": "the control set: images of the same source as D_Q that were never used in training",
    "rho": "the paper’s score: the distance of the target from models of D_Q, divided by that of models of D_C; it "
    "decides nothing here",
    "KS": "the Kolmogorov–Smirnov distance of two distributions: the largest difference of their shares below a value",
    "share of D_Q held": "the share of D_Q that a target may hold, estimated from models trained on known shares",
    "more certain": "the test’s effect: how much more certain a target is about D_Q than about the control set, or the "
    "reverse, in standard deviations of chance",
    "U-LiRA": "an attack that identifies members by likelihood ratios, from models with and without unlearning",
    "PrivLeak": "a score of unlearning: the attack’s success on the target relative to that on a retrained model",
    "power": "the share of models of a known share of D_Q that the test detects",
}


HOLD_BACK = (
    "Hold half of the images back before you share any, or name images of the same source that no one else received "
    "(`query.held_back=0.5` or `query.control.data=folder:kept`)."
)
TO_THE_OWNER = (
    "Show this page to the owner of the model, with the tables listed below, and request a model that was trained "
    "without the data.",
    "Audit the new model in the same way, with control images that were not used before.",
)
KEEP_AND_CHECK = (
    "Keep this page with the tables listed below.",
    "Confirm that the audited model is the one in use; the audit assumes this.",
)
RULE = (
    "A model is reported as “not forgotten” if it is more certain about the data than about the control images and the "
    "difference is too large for chance. It is reported as “forgotten” if there is no such difference and it holds at "
    "most {negligible} of the data. It is “not assessable” if its answers do not allow a comparison. Otherwise the "
    "answer is “undecided”. The command `engram show forgetting` prints the exact rule."
)
ACCUSATION_ERROR = (
    "If no audited model was trained on the data, at most {per_thousand} of 1,000 audits report any of them as “not "
    "forgotten”, regardless of their other training data{drawn}."
)
ACCUSATION_ERROR_OF_ONE = (
    "If the audited model was not trained on the data, at most {per_thousand} of 1,000 audits report it as “not "
    "forgotten”, regardless of its other training data{drawn}."
)
CLEARANCE_ERROR = (
    "Of 100 models that hold more than {negligible} of the data and were trained like the comparison models, at most 5 "
    "are reported as “forgotten”."
)


def ask_question(config: Forgetting, evidence: Evidence | None) -> str:
    """State the question, the comparison that answers it, and how trained models are named."""
    targets = () if evidence is None else evidence.targets
    if len(targets) == 1:
        question = "Has the model forgotten the data in question, or does it still recognise them?"
    else:
        question = "Have these models forgotten the data in question, or do they still recognise them?"
    counted = ""
    if evidence is not None and evidence.images is not None:
        counted = f"{evidence.images:,} "
    data = (
        f"The data are {counted}images of {config.query.data.named().name}. The audit compares answers about them with "
        "answers about control images: images of the same source that were never used in training. A model that never "
        "saw the data treats both alike."
    )
    return " ".join([question, data, *_explain_names(config, evidence)])


def list_findings(config: Forgetting, evidence: Evidence, _first: Finding) -> tuple[Finding, ...]:
    """List one finding per target, the deciding answers first."""
    names = _plain_names(config)
    findings = []
    for target in evidence.by_weight:
        name = target.file or ""
        if not name and len(evidence.targets) > 1:
            name = names.get(target.name, target.name)
        findings.append(Finding(target.answer, _explain_target(config, target), number_line(config, target), name))
    return tuple(findings)


def name_models(config: Forgetting) -> str:
    """Name the models that were examined: trained by the audit, or given ones."""
    given_models = config.given
    if given_models is None:
        trained = _trained_targets(config)
        if not trained:
            return "The audit examined no model."
        replicates = config.question.replicates if isinstance(config.question, Scores) else 1
        shares = f", {replicates} for each of {len(trained)} known mixtures of training data"
        return describe_trained(len(trained) * replicates, shares)
    sentences = []
    if given_models.models:
        sentences.append(describe_files([model.path for model in given_models.models]))
    if given_models.outputs:
        sentences.append(describe_tables([table.path for table in given_models.outputs]))
    sentences.append("For comparison, it trained other models with and without the data.")
    return " ".join(sentences)


def state_rules(config: Forgetting, evidence: Evidence | None) -> tuple[str, str, str]:
    """State the rule in plain words, the error rate of the answer, and that of the other answer if it was possible."""
    numbers = {
        "negligible": format_percent(config.negligible),
        "per_thousand": f"{1000 * LEVEL:g}",
        "drawn": "" if config.query.named_control is None else DRAWN.replace("D_Q", "the data"),
    }
    if evidence is None:
        errors = []
    else:
        errors = _applicable_errors(evidence.targets)
    decisive = ""
    others = []
    for answer, error in errors:
        if evidence is not None and answer == evidence.answer:
            decisive = error
        else:
            others.append(error)
    return RULE.format_map(numbers), decisive.format_map(numbers), " ".join(others).format_map(numbers)


def _applicable_errors(targets: Sequence[JudgedTarget]) -> list[tuple[Answer, str]]:
    """List the possible answers and their error rates: none without a test, no clearance without a limit."""
    tested = [target.evidence for target in targets if target.evidence.p is not None]
    if not tested:
        return []
    accusation = ("not forgotten", ACCUSATION_ERROR_OF_ONE if len(targets) == 1 else ACCUSATION_ERROR)
    has_limit = any(evidence.share is not None and evidence.share.high is not None for evidence in tested)
    if has_limit:
        return [accusation, ("forgotten", CLEARANCE_ERROR)]
    return [accusation]


def _trained_targets(config: Forgetting) -> tuple[Target, ...]:
    question = config.question
    if isinstance(question, Scores) and isinstance(question.audited, Trained):
        return question.audited.targets
    return ()


def _plain_names(config: Forgetting) -> dict[str, str]:
    """Map the table names of models trained here to names without symbols."""
    return {str(target): target.describe() for target in _trained_targets(config)}


def _explain_names(config: Forgetting, evidence: Evidence | None) -> Iterator[str]:
    """Explain how models trained here are named. Yields nothing for a single model or for given models."""
    targets = () if evidence is None else evidence.targets
    if len(targets) < 2 or not _trained_targets(config):
        return
    yield "Each model is named after the share of the data that it was trained on."
    assert isinstance(config.question, Scores)
    if config.question.calibration_share < 1:
        share = format_percent(config.question.calibration_share)
        yield f"Each also has its own random {share} of the comparison data."


def _explain_target(config: Forgetting, target: JudgedTarget) -> str:
    explain = target.decision.case.explain
    assert explain is not None  # every rule has an explanation
    return explain(config, target.evidence) or ""


def number_line(config: Forgetting, target: JudgedTarget) -> NumberLine | None:
    """Draw the share that a target may hold, in per cent, unless the target's case draws another number.

    None if the target is not assessable, since a small share would look like a clearance.
    """
    if target.answer == NOT_ASSESSABLE:
        return None
    draw = target.decision.case.line
    if draw is not None:
        return draw(config, target.evidence)
    limit = Boundary(target.evidence.negligible, "forgotten only if the whole interval lies below", clears=True)
    share = line_of(
        target.share,
        "share of the data that the model holds, in %",
        null_words="a model without the data",
        boundaries=(limit,),
    )
    return None if share is None else _scale_to_percent(share)


def _scale_to_percent(line: NumberLine) -> NumberLine:
    """Convert the values of a share's number line to per cent."""
    boundaries = tuple(replace(boundary, value=100 * boundary.value) for boundary in line.boundaries)
    return replace(
        line,
        estimate=100 * line.estimate,
        low=None if line.low is None else 100 * line.low,
        high=None if line.high is None else 100 * line.high,
        boundaries=boundaries,
    )


def list_remedies(config: Forgetting, evidence: Evidence | None) -> tuple[str, ...]:
    """List the next steps of all targets if nothing is decided, those for the deciding answers first."""
    if not isinstance(config.question, Scores):
        return ("Also evaluate models on the data (`question=scores`).",)
    if not config.query.is_controlled:
        return (HOLD_BACK,)
    steps: list[str] = []
    if evidence is not None:
        for target in evidence.by_weight:
            steps.extend(_remedies(config, target))
    return tuple(dict.fromkeys(steps)) or (RUN_AGAIN,)


def _remedies(config: Forgetting, target: JudgedTarget) -> tuple[str, ...]:
    """Return the steps of the target's case. Empty if the target has an answer."""
    if target.decision.reason is None:
        return ()
    steps = target.decision.case.steps
    return steps(config, target.evidence) if callable(steps) else steps
