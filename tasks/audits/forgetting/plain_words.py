"""The audit's answer for readers without a machine-learning background, target by target; its symbols explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.decision import RULES, RUN_AGAIN, TargetEvidence, format_percent
from tasks.audits.forgetting.evidence import Evidence, JudgedTarget
from tasks.audits.forgetting.sentences import explain_errors
from tasks.contract.certificate import Boundary, Finding, NumberLine, line_of
from tasks.contract.rules import Case
from tasks.contract.verdict import NOT_ASSESSABLE

MAX_EXPLAINED = 6  # targets whose training is told one by one
SYMBOLS: Mapping[str, str] = {
    "D_Q": "the query set: the data that may have been forgotten",
    "D_C": "the calibration set: other data of the same domain, on which models are trained here to compare with",
    "control": "images of the same source as D_Q that nobody was given",
    "rho": "the paper’s score: how far the target is from models of D_Q, in units of how far models of D_C are; it "
    "decides nothing here",
    "KS": "the Kolmogorov–Smirnov distance of two distributions: the largest difference of their shares below a value",
    "share of D_Q held": "the share of D_Q that a target may hold, by models that were trained on known shares",
    "surer": "by how many standard deviations of chance a target is surer of D_Q than of the control set",
    "U-LiRA": "an attack that tells members by likelihood ratios, from models with and without unlearning",
    "PrivLeak": "a score of unlearning: the attack’s success on the target beside that on a model trained anew",
    "power": "the share of models of a known share of D_Q that the test finds",
}


HOLD_BACK = "Hold pictures back before any are given: query.held_back=0.5, or query.control.data=folder:kept."
TO_THE_OWNER = (
    "Put this page before the owner of the model, with the tables that it names, and ask for a model that was "
    "trained without the data.",
    "Ask that model in the same way, with pictures that were not used before.",
)
KEEP_AND_CHECK = (
    "Keep this page with the tables that it names.",
    "See to it that the model that answered is the one in use: the audit takes that for granted.",
)


def ask_question(config: Forgetting, evidence: Evidence | None) -> str:
    """The question in plain words, with what the targets' names stand for."""
    targets = () if evidence is None else evidence.targets
    who = "Has the model" if len(targets) == 1 else "Has each of these models"
    return (
        f"{who} forgotten the data set, or does it still know it better than pictures of the same source that "
        f"nobody was given?{_explain_targets(config, targets)}"
    )


def list_findings(_config: Forgetting, evidence: Evidence, _first: Finding) -> tuple[Finding, ...]:
    """A finding for each target, those that decide first."""
    several = len(evidence.targets) > 1
    return tuple(
        Finding(
            target.answer,
            _describe_finding(target),
            number_line(target),
            target.file or (target.name if several else ""),
        )
        for target in evidence.by_weight
    )


def state_rules(config: Forgetting, evidence: Evidence | None) -> tuple[str, str]:
    """The rule, and the error rates of the tests that could have decided."""
    error = "" if evidence is None else explain_errors(config, _applied_tests(evidence.targets))
    return _in_plain_words(RULES.explain(config)), _in_plain_words(error)


def _in_plain_words(text: str) -> str:
    return text.replace("D_Q", "the data set")


def _applied_tests(targets: Iterable[JudgedTarget]) -> list[Case[TargetEvidence]]:
    """The rules that could have decided: none without a test, and none that clears where no share is known."""
    tested = [target.evidence for target in targets if target.evidence.p is not None]
    has_limit = any(evidence.share is not None and evidence.share.high is not None for evidence in tested)
    return [case for case in RULES.cases if tested and (has_limit or case.answer != "forgotten")]


def _explain_targets(config: Forgetting, targets: Sequence[JudgedTarget]) -> str:
    """What the names of models that were trained here stand for, after a space; empty where one model is asked."""
    names = {target.name for target in targets}
    question = config.question
    if not isinstance(question, Scores) or not isinstance(question.audited, Trained):
        return ""
    trained = [target for target in question.audited.targets if str(target) in names]
    if len(names) < 2 or not trained:
        return ""
    if len(trained) > MAX_EXPLAINED:
        return (
            " They are called by what they were trained on: D_C is the calibration set, D_Q the data set in question, "
            "0.1 D_Q a tenth of it; whose name has no D_Q never saw it."
        )
    explained = " " + " ".join(f"{target}: {target.explain()}." for target in trained)
    if question.calibration_share == 1:
        return explained
    drawn = format_percent(question.calibration_share)
    return f"{explained} What each has of the calibration set is taken from a draw of its own, of {drawn} of that set."


def _describe_finding(target: JudgedTarget) -> str:
    """What the answer on a target rests on, in words that need no statistics: its case's, or the reason."""
    explain = target.decision.case.explain
    if explain is not None:
        return explain(None, target.evidence) or ""
    reason = _in_plain_words(target.decision.reason or "")
    return f"{reason[0].upper()}{reason[1:]}."


def number_line(target: JudgedTarget) -> NumberLine | None:
    """The share that a target may hold, if its case draws nothing else.

    None if it is not assessable, since a small share would look like a clearance.
    """
    draw = target.decision.case.line
    if target.answer == NOT_ASSESSABLE or draw is not None:
        return None if draw is None else draw(None, target.evidence)
    limit = Boundary(target.evidence.negligible, "forgotten only if the whole interval lies below", clears=True)
    never = "held by a model that never saw it"
    return line_of(target.share, "share of the data set that it holds", null_words=never, boundaries=(limit,))


def list_remedies(config: Forgetting, evidence: Evidence | None) -> tuple[str, ...]:
    """What to do if nothing is decided: the steps of the cases of all targets, those that decide first."""
    if not isinstance(config.question, Scores):
        return ("Ask what the models know, too: question=scores.",)
    if not config.query.is_controlled:
        return (HOLD_BACK,)
    steps = [] if evidence is None else [step for target in evidence.by_weight for step in _remedies(config, target)]
    return tuple(dict.fromkeys(steps)) or (RUN_AGAIN,)


def _remedies(config: Forgetting, target: JudgedTarget) -> tuple[str, ...]:
    """The steps of the case that holds for a target; none if it has an answer."""
    if target.decision.reason is None:
        return ()
    steps = target.decision.case.steps
    return steps(config, target.evidence) if callable(steps) else steps
