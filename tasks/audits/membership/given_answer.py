"""The answer for a given model: the evidence in the summary, the rules that decide, and both in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import AskedFile, GivenModel, ReturnedTable
from tasks.audits.membership.measures.given import APART, DIFFERING, DISTANCE, FOUND_GIVEN, LEAD, POWER
from tasks.audits.membership.power import record_resolution
from tasks.audits.membership.thresholds import ENOUGH_POWER, MOST_DIFFERING, UNLIKE, WIDER, thresholds
from tasks.contract.answering import Answering
from tasks.contract.certificate import STEPS
from tasks.contract.power import Resolution, single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, Row, first_row, index_rows, name_of, numerator, p_in_words, read_setting
from tasks.contract.ties import most_tied, tie_rule
from tasks.contract.verdict import NOT_ASSESSABLE
from tasks.external.causes import REPEATS, as_sentence, unlike_causes
from tasks.external.split_audit import BLIND_LEVEL

# The distance from even ranks that normal answers with WIDER times the variance have, for each image: the integral of
# (Phi(Phi^-1(u) / sqrt(WIDER)) - u)^2 over u.
WIDER_DISTANCE = (
    1 / 12
    + (math.asin(1 / (1 + WIDER)) - 2 * math.asin(1 / math.sqrt(2 * (1 + WIDER)))) / (2 * math.pi)
)  # fmt: skip


@dataclass(frozen=True)
class GivenEvidence:
    """What the answer rests on: rows of the summary, None where they are missing.

    `lead` says how much higher the given model ranks the records than images that nobody was trained on, compared with
    the others, of which `power` is the share that are found out so. `found` counts records that are found one by one.
    `distance` compares the given model with the others on those images, of which there are `images`; `differing` is the
    share of pictures handed out twice whose answers differ, and `apart` how well the records and the images are told
    apart without any model. `tied` is the row of equal scores of the given model, or of those trained here, whichever
    are more.
    """

    lead: Row | None
    found: Row | None
    distance: Row | None
    power: Row | None
    differing: Row | None
    apart: Row | None
    images: int
    level: float
    is_sent: bool
    resolution: Resolution | None = None
    tied: Row | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(
            row
            for row in (self.lead, self.found, self.distance, self.power, self.differing, self.apart)
            if row is not None
        )

    @property
    def has_references(self) -> bool:
        return self.lead is not None and self.found is not None and self.distance is not None

    @property
    def is_alike(self) -> bool:
        """Whether it may be one of the models trained here, or one trained alike on other records."""
        if self.distance is None:
            return False
        farthest = (self.distance["null"] or 0.0) + self.images * WIDER_DISTANCE
        return bool(self.distance["p_value"] > UNLIKE or self.distance["estimate"] <= farthest)

    @property
    def are_sets_alike(self) -> bool:
        """Whether the records cannot be told from the other images without a model, as far as the control sees."""
        return self.apart is None or self.apart["p_value"] > BLIND_LEVEL

    @property
    def is_steady(self) -> bool:
        """Whether the same pictures have the same answers."""
        return self.differing is None or self.differing["estimate"] <= MOST_DIFFERING

    @property
    def would_show(self) -> bool:
        """Whether a model that was trained on half of the records, or on a single one, would have been found out."""
        half = self.power is not None and self.power["low"] >= ENOUGH_POWER
        return half and self.resolution is not None and self.resolution.finds_one


def read(config: Membership, summary: pa.Table) -> GivenEvidence:
    """The evidence in a summary, as far as it has any."""
    question = config.question
    assert isinstance(question, GivenModel)
    rows, records = index_rows(summary), question.records
    apart, found = first_row(rows, APART), first_row(rows, FOUND_GIVEN)
    return GivenEvidence(
        lead=first_row(rows, LEAD),
        found=found,
        distance=first_row(rows, DISTANCE),
        power=first_row(rows, POWER),
        differing=first_row(rows, DIFFERING),
        apart=apart,
        images=read_setting(apart)["others"] if apart is not None else records.controls or records.examples,
        level=question.level,
        is_sent=isinstance(question.source, ReturnedTable),
        resolution=None if found is None else record_resolution(question, found["n"]),
        tied=most_tied(rows),
    )


def is_given(config: Membership) -> bool:
    return isinstance(config.question, GivenModel)


def is_file(config: Membership) -> bool:
    return isinstance(config.question, GivenModel) and isinstance(config.question.source, AskedFile)


def describe_lead(_config: Membership, evidence: GivenEvidence) -> str:
    """How much higher the given model ranks the records, and how many are found one by one."""
    lead, found = evidence.lead, evidence.found
    assert lead is not None  # if it is, nothing is judged
    assert found is not None
    words = (
        f"among models trained here without each of {found['n']:,} records, the given model ranks them "
        f"{100 * lead['estimate']:.1f} percentage points higher than images that nobody was trained on (0 where "
        f"nothing is memorised; {p_in_words(lead['p_value'])} among these models); {found['estimate']:,.0f} records "
        f"are found one by one (false discoveries at most {100 * evidence.level:g} %)"
    )
    labels = f". {LABELS_ALONE}" if read_setting(found)["score"] == "label" else ""
    return f"{words}{describe_power(evidence)}{labels}"


CAUSES = unlike_causes("some of the other images")


def _describe_sets(_config: Membership, evidence: GivenEvidence) -> str:
    """How well the records and the other images are told apart without a model, and what to give instead."""
    apart = evidence.apart
    assert apart is not None
    counts = read_setting(apart)
    return (
        f"the {counts['records']:,} images that the model was trained on can be told without any model from the "
        f"{counts['others']:,} that it was not trained on (area under the curve {apart['estimate']:.3f}, 95 % interval "
        f"{apart['low']:.3f} to {apart['high']:.3f}; {p_in_words(apart['p_value'])} that they were drawn alike). Give "
        "given.members and given.others of one source, drawn at random and with the same classes"
    )


def _describe_difference(_config: Membership, evidence: GivenEvidence) -> str:
    """Why the given model cannot be ranked among the others."""
    if not evidence.is_steady and evidence.differing is not None:
        row = evidence.differing
        return (
            f"{numerator(row)} of {row['n']} pictures that were handed out twice have two answers, so the table is not "
            f"what one model says in evaluation mode"
        )
    assert evidence.distance is not None
    return (
        "on images that nobody was trained on, the given model's answers are not those of one of the models trained "
        f"here ({p_in_words(evidence.distance['p_value'])} over {evidence.distance['n']} models)"
    )


def _list_likely_causes(_config: Membership, evidence: GivenEvidence) -> str:
    return f". {as_sentence(CAUSES if evidence.is_steady else REPEATS)}"


def describe_power(evidence: GivenEvidence) -> str:
    """How many of the models trained here are found out, each taken for the given one."""
    if evidence.power is None:
        return ""
    return (
        f"; of the {evidence.power['n']} models trained here, each on half of the records, {numerator(evidence.power)} "
        "would have been found out"
    )


def explain_resolution(evidence: GivenEvidence) -> Iterator[str]:
    """Why no single record could be found; a table clears nobody, however many models there are."""
    if evidence.resolution is not None and not evidence.is_sent:
        yield evidence.resolution.explain()


CHECK_SETTINGS = (
    "Check your own settings first: whether the model was trained on images that follow the records, the order "
    "of the classes, given.interface, and the shape.",
    "Train models here as the given one was trained: as many records, the same network, epochs and optimiser; "
    "models=64 or more.",
    "Take the model's own outputs, from its file where possible, unchanged and with all digits.",
)
# Asked about before anything accuses: each of them makes ranks that mean nothing.
CASES: tuple[Case[GivenEvidence], ...] = (
    Case(
        NOT_ASSESSABLE,
        "no models were trained here among which it could be ranked: a low loss alone is no evidence of any record",
        lambda evidence: not evidence.has_references,
        describe=lambda _config, _evidence: (
            "no models were trained here to rank the given one among; a low loss of a record is no evidence, since "
            "nobody knows what it were without the record"
        ),
        steps=CHECK_SETTINGS,
    ),
    Case(
        NOT_ASSESSABLE,
        "classifiers that never see a model tell the records from the images that it was not trained on (p at most "
        "{told_apart} %): what distinguishes the two sets may pass for memory, or hide it",
        lambda evidence: not evidence.are_sets_alike,
        "Of 100 audits whose two sets were drawn alike, at most {told_apart} are not assessable for it.",
        describe=_describe_sets,
        steps=CHECK_SETTINGS,
    ),
    Case(
        NOT_ASSESSABLE,
        "on images that nobody was trained on, its ranks among the models trained here are not those of one of them "
        "(exact test over models, p at most {unlike} %), nor those of one trained alike on other records, whose "
        "answers vary at most {wider} times as much; or more than {differing} % of the pictures that were handed out "
        "twice have two answers: what differs there may pass for memory, or hide it",
        lambda evidence: not (evidence.is_alike and evidence.is_steady),
        "Of 100 models that were trained as those here are, on half of the same records, at most {unlike} are not "
        "judged.",
        describe=_describe_difference,
        because=_list_likely_causes,
        steps=CHECK_SETTINGS,
    ),
    Case(
        "memorised",
        "it ranks the records higher than the images that follow, among the models trained here without each, by more "
        "than these models do of records that they were not trained on (place of its lead among theirs, p at most "
        "{level} %)",
        lambda evidence: evidence.lead is not None and evidence.lead["p_value"] <= evidence.level,
        "Of 100 models that were trained as those here are, but on none of the records, at most {level} are called so; "
        "of another training this is not known.",
        steps=STEPS["accused"],
    ),
    tie_rule(
        rows=lambda evidence: tuple(name_of(row) for row in (evidence.tied, *evidence.rows)), steps=CHECK_SETTINGS
    ),
    Case(
        "not detected",
        "of the models trained here, each on half of the records, at least {power} % are found out when they are taken "
        "for the given one (lower limit of the 95 % interval), and "
        f"{single_item('record')}",
        lambda evidence: evidence.would_show,
        scope="a given model whose file is asked: a table may be of another model",
        applies=is_file,
        steps=STEPS["cleared"],
    ),
    undecided(
        reasons=lambda _config, evidence: explain_resolution(evidence),
        steps=(
            "Train more models (models=128), and give more records.",
            "Compare the share of own models that are found out.",
        ),
    ),
)
LIMITS = (
    "The p-values are exact if the given model was trained as those here are: on as many records of the same kind, "
    "with the same network and settings. Images that nobody was trained on are compared, which cannot show every "
    "difference. A record that is not found may still have been trained on."
)
LIMITS_OF_SENT = (
    f"{LIMITS} The owner sent a table, and may have asked another model: it can accuse, and it clears nobody."
)
LABELS_ALONE = (
    "The table gives labels alone, so only whether they are right is compared: a record counts where the given model "
    "has it right and few of the others do"
)


def describe_limits(_config: Membership, evidence: GivenEvidence | None) -> str:
    return LIMITS_OF_SENT if evidence is not None and evidence.is_sent else LIMITS


def rows_of(evidence: GivenEvidence) -> tuple[Name, ...]:
    return tuple(name_of(row) for row in evidence.rows)


GIVEN = Answering[GivenEvidence](
    scope="a given model",
    applies=is_given,
    asked=lambda _config, _evidence: "Was the given model trained on these records?",
    rules=Rules(CASES, thresholds),
    read=read,
    unread=lambda _config: "nothing was compared.",
    limits=describe_limits,
    describe=describe_lead,
    rows=rows_of,
)
