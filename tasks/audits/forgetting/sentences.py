"""Verdict sentences for experts: results of targets, error rates, remarks and limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import RULES, describe_no_knowledge
from tasks.audits.forgetting.evidence import Evidence, JudgedTarget
from tasks.audits.forgetting.measures.fits import ADEQUATE
from tasks.audits.forgetting.query_set import GUESSABLE
from tasks.audits.forgetting.target_evidence import LEVEL, TargetEvidence, format_percent
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.rules import Case
from tasks.contract.summaries import numerator

MAX_LISTED = 12  # targets described individually
# The limits also appear on page one of the certificate, so they contain no symbols.
GIVEN_CONTROL = (
    "The auditor chose the control images; the audit did not draw them. If they differ from the data in another "
    "respect, such as when or by whom they were taken, models that never saw the data can be reported as not "
    "forgotten."
)
LIMITS = "The audit judges the data as a whole: a model may have been trained on a share too small to be detected."
DRAWN_CONTROL = ensure("the control images were drawn at random from the same source as the data")
SAME_SOURCE = require("the control images come from the same source as the data", "the auditor")
ONE_POOL = require(
    "the control images and the data were drawn at random from one pool before any were shared",
    "the auditor",
    "not forgotten",
)
# Training on control images can only hide knowledge of the data.
UNUSED_CONTROL = require("the control images were never used to train the model", "the owner of the model", "forgotten")
IN_USE = require("the answers come from the model in use", "the owner of the model")
LIKE_TRAINING = require("the model was trained like the comparison models", "the owner of the model", "forgotten")
SHARED_DRAW = (
    "Several findings of “not forgotten” in one run are not independent evidence: they share one draw of the control "
    "images, and an unlucky draw can affect them all."
)


# Measured in docs/forgetting_reference.md, "Owners who cheat".
TABLES = (
    "A table of outputs contains only what its owner wrote down. An owner who mixes the model's answers with those of "
    "a clean model is reported as forgotten if the mixture shows a negligible share of the data; no test of a table "
    "detects this."
)
UNBOUND_TABLES = "Nothing binds the tables to the model in use."
BOUND_TABLES = "The auditor states how the tables are bound to the model in use: {by}."


def _describe_binding(config: Forgetting) -> Iterator[str]:
    """Describe the limits of output tables and what binds them to a model. Yields nothing if no tables are judged."""
    given_models = config.given
    if given_models is not None and given_models.outputs and config.query.is_controlled:
        yield TABLES
        yield BOUND_TABLES.format(by=given_models.bound_by) if given_models.bound_by else UNBOUND_TABLES


def describe_limits(config: Forgetting, evidence: Evidence | None) -> str:
    """Describe the limits of the answer."""
    if evidence is None:
        return LIMITS
    return " ".join(_list_limits(config, evidence))


def _list_limits(config: Forgetting, evidence: Evidence) -> Iterator[str]:
    accused = [target for target in evidence.targets if target.answer == "not forgotten"]
    if config.query.named_control is not None and accused:
        yield GIVEN_CONTROL
    if len(accused) > 1:
        yield SHARED_DRAW
    if config.is_between_parties:
        yield config.query.describe_draw()
    yield from _describe_binding(config)
    yield LIMITS
    for key in evidence.keys:
        yield f"The SHA-256 of the key of the sent images begins with {key}."


def list_conditions(config: Forgetting, evidence: Evidence | None) -> Iterator[Condition]:
    if not config.query.is_controlled:
        return
    if config.query.named_control is None:
        yield DRAWN_CONTROL
    else:
        yield SAME_SOURCE
        yield ONE_POOL
    if config.given is None:
        return
    yield UNUSED_CONTROL
    yield IN_USE
    yield from _check_likeness(() if evidence is None else evidence.targets)
    yield LIKE_TRAINING


def _check_likeness(targets: Iterable[JudgedTarget]) -> Iterator[Condition]:
    """Yield whether the targets behave like the comparison models. Yields nothing without targets."""
    checks = [target.evidence for target in targets]
    if not checks:
        return
    is_met: bool | None = None
    if all(evidence.accuracy.p is not None and evidence.agreement.p is not None for evidence in checks):
        is_met = all(evidence.failed_check is None for evidence in checks)
    yield confirm("on the control images, the model behaves like the comparison models", is_met, "forgotten")


def describe_details(config: Forgetting, evidence: Evidence) -> Iterator[str]:
    """Yield error rates of the deciding cases, how many known targets were decided rightly, and the test's power."""
    yield explain_errors(config, [target.decision.case for target in evidence.targets])
    yield from _describe_correctness(evidence)
    yield from describe_power(evidence)


def explain_errors(config: Forgetting, cases: Iterable[Case[TargetEvidence]]) -> str:
    """State the error rates of these cases, in rule order."""
    numbers = RULES.numbers(config)
    stated = [case for case in RULES.cases if case in cases and case.error]
    return " ".join(case.error.format_map(numbers) for case in stated)


def describe_targets(_config: Forgetting, evidence: Evidence) -> str:
    """Describe the result of the target. For several targets, count the answers and describe the gravest results."""
    answers = [target.answer for target in evidence.targets]
    if len(answers) == 1:
        return _describe_target(evidence.targets[0])
    counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in sorted(set(answers)))
    return f"of {len(answers)} targets, {counts}. {'; '.join(list_targets(evidence))}"


def list_targets(evidence: Evidence) -> tuple[str, ...]:
    """Describe the results of up to 12 targets, those with the gravest answers. Empty for a single target."""
    if len(evidence.targets) < 2:
        return ()
    gravest = evidence.by_weight[:MAX_LISTED]
    listed = [target for target in evidence.targets if target in gravest]
    return tuple(f"{target.quoted} is {target.answer}: {_describe_target(target)}" for target in listed)


def _describe_target(target: JudgedTarget) -> str:
    """Describe the target's evidence, and the reason if it is not assessable or undecided."""
    describe = target.decision.case.describe or describe_no_knowledge
    clauses = (describe(None, target.evidence), target.decision.reason)
    return ", but ".join(filter(None, clauses))


def _describe_correctness(evidence: Evidence) -> Iterator[str]:
    if evidence.right_count is not None and len(evidence.targets) > 1:
        yield (
            f"For {evidence.known_count} targets with known training, the number of correct answers is "
            f"{evidence.right_count}, and of wrong answers {evidence.wrong_count}."
        )


def describe_power(evidence: Evidence) -> Iterator[str]:
    """State how many models of known shares the test detects."""
    counts = []
    for share, power in evidence.powers:
        if share > 0:
            counts.append(f"{format_percent(share)} in {numerator(power)} of {power['n']}")
    if counts:
        yield (
            "Power: the test detects single models trained on D_C and a known share of D_Q, each tested alone at level "
            f"{LEVEL:g}: {', '.join(counts)}."
        )


def remarks(config: Forgetting, evidence: Evidence) -> Iterator[str]:
    """Yield warnings about the run."""
    if evidence.fit is not None and evidence.fit < ADEQUATE:
        yield (
            f"Warning: a training classifies only {100 * evidence.fit:.3g} % of its own images correctly. Below "
            f"{100 * ADEQUATE:g} %, a model's answers say little about its data: train longer."
        )
    if not config.query.is_controlled:
        yield (
            "Without a control set, this run repeats the published score and judges no model. Hold images back "
            "(query.held_back=0.5) or name images of the same source (query.control.data=...)."
        )
    if config.given is not None and config.query.is_guessable:
        yield GUESSABLE  # the owner could have found out which images are D_Q


def describe_published_rule(evidence: Evidence) -> str:
    """State the answers of the published rule over all model triples. Empty if it was not applied."""
    triples = [
        f"{target.quoted} {numerator(target.triples)} of {target.triples['n']}"
        for target in evidence.targets
        if target.triples is not None and target.triples["n"] > 1
    ]
    if not triples:
        return ""
    return (
        "The published rule, two-sided rho >= 1 of one query, one calibration and one target model, reports forgotten "
        f"for these numbers of triples: {', '.join(triples[:MAX_LISTED])}."
    )
