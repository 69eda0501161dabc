"""The verdict's sentences: what targets say, the errors of the tests, remarks and limits, for experts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import LEVEL, RULES, TargetEvidence, describe_no_knowledge, format_percent
from tasks.audits.forgetting.evidence import Evidence, JudgedTarget
from tasks.audits.forgetting.measures.fits import ADEQUATE
from tasks.audits.forgetting.query_set import GUESSABLE
from tasks.contract.rules import Case
from tasks.contract.summaries import numerator

MAX_LISTED = 12  # targets that are told one by one
GIVEN_CONTROL = (
    "The control images were named (query.control) and not held back by the audit's draw: the accusation holds if D_Q "
    "and the control set were drawn from one pool at random before anything was given. Where they differ in any other "
    "way, such as when or by whom they were taken, models that never saw D_Q can be accused."
)
LIMITS = (
    "The audit speaks of the data set as a whole: a share below the limit that is told may be held. It takes for "
    "granted that the control images come from the same source as the data set and were never given to anybody, and "
    "that the answers are those of the model in use; the share, unlike the accusation, that the model was trained like "
    "those it is compared with."
)
# Measured with 1,500 draws in each of several worlds of MNIST: docs/forgetting.md, "How often it is right".
SHARED_DRAW = (
    "Accused targets do not confirm one another: all of a run share one draw of who is control. Where a draw accused "
    "one model that never saw D_Q, it accused a second one with a chance of .55 (models of other data of the domain), "
    ".67 (of other digits) or .07 (of D_C)."
)


# Measured in docs/forgetting.md, "What binds a table to the deployed model".
TABLES = (
    "A table of outputs is what its owner wrote down. Who mixes a model's answers with those of a clean one is called "
    "forgotten where the mixture shows less of the data set than what is negligible: no test of a table finds that."
)
UNBOUND_TABLES = "Nothing binds the tables to the model in use."
BOUND_TABLES = "What binds the tables to the model in use was given by who ran the audit: {by}."


def _describe_binding(config: Forgetting) -> Iterator[str]:
    """What a table of outputs cannot show, and what binds it to a model; nothing where no tables are judged."""
    given = config.given
    if given is not None and given.outputs and config.query.is_controlled:
        yield TABLES
        yield BOUND_TABLES.format(by=given.bound_by) if given.bound_by else UNBOUND_TABLES


def describe_limits(config: Forgetting, evidence: Evidence | None) -> str:
    """What the answer does not say."""
    if evidence is None:
        return LIMITS
    accused = [target for target in evidence.targets if target.answer == "not forgotten"]
    is_accused_by_given = config.query.named_control is not None and accused
    keys = [
        f"The key of the pictures that were handed out has a SHA-256 that begins with {key}." for key in evidence.keys
    ]
    sentences = [
        *([GIVEN_CONTROL] if is_accused_by_given else []),
        *([SHARED_DRAW] if len(accused) > 1 else []),
        *([config.query.describe_draw()] if config.is_between_parties else []),
        *_describe_binding(config),
        LIMITS,
        *keys,
    ]
    return " ".join(sentences)


def describe_details(config: Forgetting, evidence: Evidence) -> Iterator[str]:
    """How often the cases that decided are wrong, how many decisions are known to be right, and the test's power."""
    yield explain_errors(config, [target.decision.case for target in evidence.targets])
    yield from _describe_correctness(evidence)
    yield from describe_power(evidence)


def explain_errors(config: Forgetting, cases: Iterable[Case[TargetEvidence]]) -> str:
    """How often these cases are wrong, in their order."""
    numbers = RULES.numbers(config)
    stated = [case for case in RULES.cases if case in cases and case.error]
    return " ".join(case.error.format_map(numbers) for case in stated)


def describe_targets(_config: Forgetting, evidence: Evidence) -> str:
    """What the answer rests on: of several targets their counts, and the first one by one."""
    answers = [target.answer for target in evidence.targets]
    if len(answers) == 1:
        return _describe_target(evidence.targets[0])
    counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in sorted(set(answers)))
    listed = "; ".join(
        f"{target.quoted} is {target.answer}: {_describe_target(target)}" for target in evidence.targets[:MAX_LISTED]
    )
    return f"of {len(answers)} targets, {counts}. {listed}"


def _describe_target(target: JudgedTarget) -> str:
    """What the answer on a target rests on: its evidence, and why it is not assessable or undecided."""
    describe = target.decision.case.describe or describe_no_knowledge
    sentences = (describe(None, target.evidence), target.decision.reason)
    return ", but ".join(filter(None, sentences))


def _describe_correctness(evidence: Evidence) -> Iterator[str]:
    """How many of the targets whose training is known are decided as they were trained."""
    if evidence.right is not None and len(evidence.targets) > 1:
        yield (
            f"By what they were trained on, {evidence.right} of {evidence.known} are decided rightly and "
            f"{evidence.wrong} wrongly."
        )


def describe_power(evidence: Evidence) -> Iterator[str]:
    """Which shares would have been found, by models of known shares."""
    counts = [
        f"{format_percent(share)} in {numerator(power)} of {power['n']}"
        for share, power in evidence.powers
        if share > 0
    ]
    if counts:
        yield (
            f"Of single models trained on D_C and a known share of D_Q, each tested alone at {LEVEL:g}, the test finds "
            f"{', '.join(counts)}."
        )


def remarks(config: Forgetting, evidence: Evidence) -> Iterator[str]:
    """What a reader must know beside the answer."""
    if evidence.fit is not None and evidence.fit < ADEQUATE:
        yield (
            f"Warning: a training gets only {100 * evidence.fit:.3g} % of its own images right; below "
            f"{100 * ADEQUATE:g} % what models say is no good likeness of their data: train longer."
        )
    if not config.query.is_controlled:
        yield (
            "Without a control set this run repeats the published score and judges nobody: hold images back "
            "(query.held_back=0.5) or give some of the same source (query.control.data=...)."
        )
    if config.given is not None and config.query.is_guessable:
        yield GUESSABLE  # its owner could have found out which of the pictures that it answered for are D_Q


def describe_published_rule(evidence: Evidence) -> str:
    """What the published score and its rule say, a triple of models at a time; empty where none was judged."""
    triples = [
        f"{target.quoted} {numerator(target.triples)} of {target.triples['n']}"
        for target in evidence.targets
        if target.triples is not None and target.triples["n"] > 1
    ]
    if not triples:
        return ""
    return (
        "The published rule, two-sided rho >= 1 of one query, one calibration and one target model, calls forgotten so "
        f"many of these triples: {', '.join(triples[:MAX_LISTED])}."
    )
