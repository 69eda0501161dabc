"""The audit's answer: the rules that decide, and the verdict in words.

It rests on the tail: on how many observations are memorised beyond chance, by more than is negligible. The
generalisation gap, by which the model fits on average what it trained on better, says nothing of any single
observation: alone it never makes the answer *memorised*. Nor does the published score, which is above 0 where nothing
is memorised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tasks.audits.density import plain_words as plain
from tasks.audits.density.config import Density, KernelDensity, Memorization, NearDuplicates
from tasks.audits.density.evidence import SIGNIFICANT, SURELY, Evidence, read_evidence
from tasks.audits.density.measures.scores import FOUND
from tasks.audits.density.reassignment import smallest_p_value
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
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.power import single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import name_of, row_name
from tasks.contract.ties import describe_ties, tie_rule
from tasks.contract.verdict import ANSWERS, NOT_ASSESSABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not detected", "undecided")},
    NOT_ASSESSABLE: ANSWERS[NOT_ASSESSABLE],
}


def _leaves_out_folds(config: Density) -> bool:
    """Whether models leave out folds, and not single rows."""
    return not (isinstance(config.question, Memorization) and config.question.leaves_out_rows)


def thresholds(config: Density) -> Mapping[str, str]:
    """The numbers in the rules' texts; at their defaults if the question is about no model.

    Errors are near their bound with folds; with rows left out one by one they hold whatever p-values share.
    """
    question = config.question if isinstance(config.question, Memorization) else Memorization()
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


FOLDS = "models that left out folds"
FOLDS = "models that left out folds"
BY_COUNT = Case[Evidence](
    "memorised",
    "images are called at {level} % false discoveries (one side of a randomisation test of each, that training "
    "raises its log probability by no more than {negligible} nats)",
    lambda evidence: evidence.called["estimate"] > 0,
    "Of 100 audits of models that keep nothing, {often} {level} say memorised; of the images that are called, "
    "{often} {level} in 100 are called wrongly.",
    because=lambda _config, _evidence: ". This count decides the answer.",
    explain=lambda config, evidence: explain(config, evidence, finds_nothing=False),
    line=lambda _config, evidence: plain.count_line(evidence),
    steps=plain.SCORES_FIRST,
)
TOGETHER = Case[Evidence](
    "memorised",
    "so many p-values are at most {counted} % that chance brings as many in at most {surely} of 1,000 audits "
    "(they are counted together where each is of at least {draws} permutations, or of all there are)",
    lambda evidence: evidence.by_chance <= SURELY,
    "Chance alone brings as many small p-values in {surely} of 1,000 such audits.",
    scope=FOLDS,
    applies=_leaves_out_folds,
    because=lambda _config, _evidence: ". The test of all observations together decides the answer.",
    explain=lambda config, evidence: _explain_together(config, evidence),
    line=lambda _config, evidence: plain.all_together_line(evidence),
    rows=lambda evidence: (evidence.names[1], evidence.names[0], *evidence.names[2:]),
    steps=plain.SCORES_FIRST,
)
RULES = Rules[Evidence](
    (
        BY_COUNT,
        TOGETHER,
        tie_rule(
            describe=None,
            reasons=lambda _config, evidence: (f"But {describe_ties(evidence.tied)}.",),
            rows=lambda evidence: (name_of(evidence.tied), *evidence.names),
            steps=plain.MORE_REPETITIONS,
        ),
        Case(
            "undecided",
            "p-values were not counted together, or chance brings as many small ones in at most {significant} of 100 "
            "audits",
            lambda evidence: evidence.beyond is None or evidence.by_chance <= SIGNIFICANT,
            scope=FOLDS,
            applies=_leaves_out_folds,
            reasons=lambda config, evidence: reasons_of_doubt(_asked_memorization(config), evidence),
            steps=plain.MORE_REPETITIONS,
        ),
        Case(
            "not detected",
            "the whole 95 % interval of the generalisation gap, by which training raises the log probability of an "
            "image on average, lies below {negligible} nats, and a single image that is memorised by {detectable} nats "
            "would be found in {power} % of cases (by the upper 95 % limit of the memory that this takes), which needs "
            f"that {single_item('image')}",
            lambda evidence: evidence.gap_is_negligible and evidence.would_find_one,
            steps=plain.NEAR_COPIES,
        ),
        undecided(
            reasons=lambda config, evidence: reasons_of_doubt(_asked_memorization(config), evidence),
            steps=plain.MORE_REPETITIONS,
        ),
    ),
    thresholds,
)

LIMITS = (
    "This speaks of the training procedure and data that were audited, at this number of trainings; not of one given "
    "model. An observation without a small p-value is not safe: fewer models show less. Images are held out one by "
    "one: where one has near copies in the data these are trained on when it is held out, and its memory cannot be "
    "seen; the measure `duplicates` finds the closest pairs."
)
UNTRAINED = "Nothing is said of a model, since none was trained and asked about its observations."
SHOWN = {
    KernelDensity: "a density in one dimension, whose scores are known exactly",
    NearDuplicates: "the closest pairs of training images",
}


def _asked_memorization(config: Density) -> Memorization:
    """The question of a config whose models were asked, as all that have evidence are."""
    assert isinstance(config.question, Memorization)
    return config.question


def read(config: Density, summary: pa.Table) -> Evidence | None:
    return read_evidence(config.question, summary) if isinstance(config.question, Memorization) else None


def explain_absence(config: Density) -> str:
    """Why there is no evidence."""
    if isinstance(config.question, Memorization):
        return "no observation has log p by models that trained on it and by one that did not."
    return f"no model has been asked. This run shows {SHOWN[type(config.question)]}."


def describe_limits(config: Density, _evidence: Evidence | None) -> str:
    return LIMITS if isinstance(config.question, Memorization) else UNTRAINED


def describe_details(config: Density, evidence: Evidence) -> Iterator[str]:
    """What the observations say together and on average, and what would have been found."""
    yield from describe_all_together(evidence)
    yield from describe_gap(_asked_memorization(config), evidence)
    yield from describe_found(evidence)


def explain(config: Density, evidence: Evidence, finds_nothing: bool = True) -> str:
    """What was found in words that need no statistics; an answer that accuses says nothing of what else would show."""
    question = _asked_memorization(config)
    sentences = (
        *plain.explain_count(question, evidence),
        *(plain.explain_found(evidence) if finds_nothing else ()),
        *plain.explain_gap(question, evidence),
    )
    return " ".join(sentences)


def _explain_together(config: Density, evidence: Evidence) -> str:
    """The same if the p-values of all images together decide."""
    question = _asked_memorization(config)
    sentences = (
        *plain.explain_count(question, evidence),
        *plain.explain_all_together(question),
        *plain.explain_gap(question, evidence),
    )
    return " ".join(sentences)


def _draw_gap(config: Density, evidence: Evidence) -> NumberLine | None:
    return plain.gap_line(_asked_memorization(config), evidence)


def is_null(config: Density) -> bool:
    return isinstance(config.question, Memorization) and config.question.is_null


ANSWERING = Answering[Evidence](
    asked=lambda _config, _evidence: plain.ASKED,
    rules=RULES,
    read=read,
    unread=explain_absence,
    limits=describe_limits,
    describe=lambda _config, evidence: describe_count(evidence),
    rows=lambda evidence: evidence.names,
    details=describe_details,
    remarks=lambda config, evidence: remarks(_asked_memorization(config), evidence.background),
    published=lambda evidence: describe_published_score(evidence.background),
    explain=explain,
    line=_draw_gap,
    null=Null(
        holds=is_null,
        remark=lambda _config: "No model was trained on the images that were asked about: this is a null.",
        proper="asked=train",
        notice=plain.NOTICE_OF_NULL,
    ),
)


def verdict(config: Density, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Density, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


# What a search over training choices moves.
OBJECTIVES = Objectives(
    memorization=Objective(
        "mean matched-count M", "nats", "lower", row_reader(*row_name("matched-count M", statistic="mean"))
    ),
    utility=Objective("test loss", "nats", "lower", row_reader(*row_name("loss", models="folds", split="test"))),
    allowance=1.0,
)
