"""Decision rules of the audit, and the verdict text.

The answer is based on the tail: the number of images that are memorised beyond chance by more than a negligible amount.
The generalisation gap is an average and does not describe any single image, so a gap alone never means *memorised*.
Neither does the published score, which is above 0 even without memorisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tasks.audits.density import plain_words as plain
from tasks.audits.density.config import Density, KernelDensity, Memorization, NearDuplicates
from tasks.audits.density.evidence import SIGNIFICANT, SURELY, Evidence, read_evidence
from tasks.audits.density.measures.scores import FOUND
from tasks.audits.density.reassignment import smallest_p_value
from tasks.audits.density.record_words import is_about_records, name_records
from tasks.audits.density.sentences import (
    describe_all_together,
    describe_count,
    describe_found,
    describe_gap,
    describe_published_score,
    reasons_of_doubt,
    remarks,
)
from tasks.audits.density.tail import LEAST_DRAWS, LEVEL, counted_at
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import Certificate, NumberLine
from tasks.contract.conditions import Condition, ensure, require
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.power import single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import name_of, row_name
from tasks.contract.ties import describe_ties, tie_rule
from tasks.contract.verdict import Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = select_meanings(
    ("memorised", "not detected"),
    {
        "memorised": "These training images left a trace in the models: whoever can measure how probable a model "
        "considers an image may be able to tell that it was used for training. Whether models generate copies of such "
        "images is a different question.",
    },
)


def _leaves_out_folds(config: Density) -> bool:
    """Return whether models leave out folds rather than single rows."""
    return not (isinstance(config.question, Memorization) and config.question.leaves_out_rows)


def thresholds(config: Density) -> Mapping[str, str]:
    """Return the numbers that appear in the rule texts, or their defaults if the run trains no model.

    With folds, error rates are near their bound. With single rows left out, the dependence between p-values is unknown,
    and the rates are only upper bounds.
    """
    if isinstance(config.question, Memorization):
        question = config.question
    else:
        question = Memorization()
    return {
        "level": f"{100 * LEVEL:g}",
        "often": "at most" if question.leaves_out_rows else "about",
        "negligible": f"{question.negligible:g}",
        "detectable": f"{question.detectable:g}",
        "counted": f"{100 * counted_at(smallest_p_value(question.repetitions, question.models)):g}",
        "surely": f"{1000 * SURELY:g}",
        "significant": f"{100 * SIGNIFICANT:g}",
        "draws": f"{LEAST_DRAWS:,}",
        "power": f"{100 * FOUND:.0f}",
    }


FOLDS = "models trained without one fold"
BY_COUNT = Case[Evidence](
    "memorised",
    "at least one image is identified at a false discovery rate of {level} % (a one-sided randomisation test for each "
    "image of the hypothesis that training raises its log probability by at most {negligible} nats)",
    lambda evidence: evidence.identified_share["estimate"] > 0,
    "If the models memorised nothing, {often} {level} of 100 audits would report memorisation.",
    because=lambda _config, _evidence: ". This count decides the answer.",
    explain=lambda config, evidence: _explain_count(config, evidence),
    line=lambda _config, evidence: plain.count_line(evidence),
    steps=plain.advise_review,
    further_error="On average, {often} {level} of 100 identified images are false alarms.",
)
TOGETHER = Case[Evidence](
    "memorised",
    "more p-values are at most {counted} % than chance explains: by chance alone, at most {surely} of 1,000 audits "
    "have that many (counted only if each p-value uses at least {draws} permutations, or all possible ones)",
    lambda evidence: evidence.by_chance <= SURELY,
    "By chance alone, {surely} of 1,000 such audits have as many images that look memorised.",
    scope=FOLDS,
    applies=_leaves_out_folds,
    because=lambda _config, _evidence: ". The test of all observations together decides the answer.",
    explain=lambda config, evidence: _explain_together(config, evidence),
    line=lambda _config, evidence: plain.all_together_line(evidence),
    rows=lambda evidence: (evidence.names[1], evidence.names[0], *evidence.names[2:]),
    steps=plain.advise_protection,
)
RULES = Rules[Evidence](
    (
        BY_COUNT,
        TOGETHER,
        tie_rule(
            describe=None,
            reasons=lambda _config, evidence: (f"But {describe_ties(evidence.tied)}.",),
            rows=lambda evidence: (name_of(evidence.tied), *evidence.names),
            steps=plain.advise_more_repetitions,
        ),
        Case(
            "undecided",
            "p-values are not counted together, or by chance alone at most {significant} of 100 audits have that many "
            "small ones",
            lambda evidence: evidence.excess is None or evidence.by_chance <= SIGNIFICANT,
            scope=FOLDS,
            applies=_leaves_out_folds,
            reasons=lambda config, evidence: reasons_of_doubt(_memorization_question(config), evidence),
            steps=plain.advise_more_repetitions,
            explain=lambda config, evidence: _explain_doubt(config, evidence),
        ),
        Case(
            "not detected",
            "the whole 95 % interval of the generalisation gap (the mean rise in an image's log probability by "
            "training on it) is below {negligible} nats, and a single image memorised by {detectable} nats would be "
            "detected in {power} % of cases (by the upper 95 % limit of the detection limit), which requires that "
            f"{single_item('image')}",
            lambda evidence: evidence.gap_is_negligible and evidence.would_find_one,
            steps=plain.advise_search,
        ),
        undecided(
            reasons=lambda config, evidence: reasons_of_doubt(_memorization_question(config), evidence),
            steps=plain.advise_more_repetitions,
            explain=lambda config, evidence: _explain_doubt(config, evidence),
        ),
    ),
    thresholds,
)

LIMITS = (
    "The answer describes this way of training on these data, not one particular deployed model. Images that are not "
    "reported as memorised are not proven safe, and more trainings can detect more."
)
CONDITIONS = (
    ensure("chance decided which models were trained without an image"),
    require(
        "the data contain no near copy of a tested image; otherwise, models that are trained without the image still "
        "train on its copy, and memorisation can be missed (`question=duplicates` lists the closest pairs)",
        "the owner of the data",
        "not detected",
    ),
)
UNTRAINED = "This run trains no model, so it does not describe any model."
SHOWN = {
    KernelDensity: "a density in one dimension, whose scores are known exactly",
    NearDuplicates: "the closest pairs of training images",
}


def _memorization_question(config: Density) -> Memorization:
    """Return the question of a configuration that has evidence, which always trains models."""
    assert isinstance(config.question, Memorization)
    return config.question


def read(config: Density, summary: pa.Table) -> Evidence | None:
    if isinstance(config.question, Memorization):
        return read_evidence(config.question, summary)
    return None


def explain_absence(config: Density) -> str:
    """Explain why there is no evidence."""
    if isinstance(config.question, Memorization):
        return "no image has a log p both from a model that trained on it and from one that did not."
    return f"no model was evaluated. This run shows {SHOWN[type(config.question)]}."


def describe_limits(config: Density, _evidence: Evidence | None) -> str:
    if isinstance(config.question, Memorization):
        return LIMITS
    return UNTRAINED


def list_conditions(config: Density, _evidence: Evidence | None) -> tuple[Condition, ...]:
    return CONDITIONS if isinstance(config.question, Memorization) else ()


def describe_details(config: Density, evidence: Evidence) -> Iterator[str]:
    """Describe the test of all images together, the average over images, and the detection limit."""
    yield from describe_all_together(evidence)
    yield from describe_gap(_memorization_question(config), evidence)
    yield from describe_found(evidence)


def explain(config: Density, evidence: Evidence) -> str:
    """Explain the finding in plain words if no image is memorised."""
    question = _memorization_question(config)
    sentences = (
        *plain.explain_count(question, evidence),
        plain.PROBABILITY,
        *plain.explain_detection_limit(evidence),
        *plain.explain_gap(question, evidence),
    )
    return " ".join(sentences)


def _explain_doubt(config: Density, evidence: Evidence) -> str:
    return " ".join([explain(config, evidence), *plain.explain_doubt(evidence)])


def _explain_count(config: Density, evidence: Evidence) -> str:
    return " ".join(plain.explain_count(_memorization_question(config), evidence))


def _explain_together(config: Density, evidence: Evidence) -> str:
    question = _memorization_question(config)
    return " ".join(plain.explain_all_together(question, evidence))


def _draw_gap(config: Density, evidence: Evidence) -> NumberLine | None:
    return plain.gap_line(_memorization_question(config), evidence)


def is_null(config: Density) -> bool:
    return isinstance(config.question, Memorization) and config.question.is_null


ANSWERING = Answering[Evidence](
    asked=lambda _config, _evidence: plain.ASKED,
    rules=RULES,
    read=read,
    unread=explain_absence,
    limits=describe_limits,
    conditions=list_conditions,
    describe=lambda _config, evidence: describe_count(evidence),
    rows=lambda evidence: evidence.names,
    details=describe_details,
    remarks=lambda config, evidence: remarks(_memorization_question(config), evidence.background),
    published=lambda evidence: describe_published_score(evidence.background),
    explain=explain,
    line=_draw_gap,
    examined=plain.name_models,
    null=Null(
        holds=is_null,
        remark=lambda _config: "This is a control run: no model was trained on the evaluated images.",
        proper="evaluation_split=train",
        notice=plain.NOTICE_OF_NULL,
    ),
)


def verdict(config: Density, summary: pa.Table) -> Verdict:
    result = ANSWERING.verdict(config, summary)
    return name_records(result) if is_about_records(config) else result


def certificate(config: Density, summary: pa.Table, verdict: Verdict) -> Certificate:
    result = ANSWERING.certificate(config, summary, verdict)
    return name_records(result) if is_about_records(config) else result


# The mean over all images compares runs. The number of images that are identified depends on the number of
# repetitions: it stays at 0 while the effect grows, until one image stands out.
OBJECTIVES = Objectives(
    memorization=Objective(
        "mean matched-count M", "nats", "lower", row_reader(*row_name("matched-count M", statistic="mean"))
    ),
    utility=Objective("test loss", "nats", "lower", row_reader(*row_name("loss", models="folds", split="test"))),
    allowance=1.0,
)
