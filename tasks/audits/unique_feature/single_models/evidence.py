"""The evidence about single models in the summary: ranks, pushes, and checks of returned tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import AnswerRank, FirstLayerRank, JudgedBy, ReferenceRank
from tasks.audits.unique_feature.measures.exact_ranks import REFERENCE_PART_RANK, REFERENCE_RANK
from tasks.audits.unique_feature.measures.family import FOUND, OTHERS, PUSH, RANK, UPPER
from tasks.audits.unique_feature.population import LEVEL, Population
from tasks.audits.unique_feature.single_models.look_alikes import RANK as PART_RANK
from tasks.audits.unique_feature.single_models.output_checks import LABELS, TWICE
from tasks.audits.unique_feature.single_models.weight_ranks import BY_WEIGHTS, BY_WEIGHTS_PARTS
from tasks.contract.power import SMALLEST
from tasks.contract.summaries import Name, Row, Rows, first_row, names_of, numerator, read_setting, select_rows
from tasks.contract.ties import most_tied
from tasks.external.causes import MISSES, REPEATS

MISSED = 0.01  # p-value of the accuracy stated by the owner, below which a table is not assessable
ENOUGH = 0.8  # share of the smallest relevant pushes that a panel must detect for its silence to mean anything


@dataclass(frozen=True)
class Rank:
    """The position of the feature in a population (1 is first), by one or more models evaluated as one.

    `references` is the number of clean models that they are compared with.
    """

    position: int
    p: float
    population: Population
    models: int
    references: int = 0

    @property
    def is_small(self) -> bool:
        return self.p <= LEVEL


@dataclass(frozen=True)
class Push:
    """The push of the feature towards a label, compared with the others of its family, in nats.

    `label` is None if it is the canary's, else the label that the feature favours most. `family_range` contains the
    limits of the central 95 % of the others' pushes, or None if they are unknown. `upper` is the upper limit of the
    feature's push. A push of `smallest` would have been detected in a share `power` of cases.
    """

    value: float
    label: int | None
    family_range: tuple[float, float] | None
    upper: float | None
    smallest: float
    power: float

    @property
    def is_excluded(self) -> bool:
        """Whether a relevant push is unlikely, regardless of the power."""
        return self.upper is not None and self.upper < self.smallest


@dataclass(frozen=True)
class TableCheck:
    """The checks of an output table, by images that were exported twice and images with known labels.

    Of `repeats` repeated images, `differing` have two different outputs. Of `labelled` images, the table gives `right`
    the correct label. `stated` is the accuracy stated by the owner, and `p` is the probability of at most `right`
    correct labels at this accuracy. Both are None if no accuracy is stated.
    """

    table: int
    repeats: int
    differing: int
    labelled: int = 0
    right: int = 0
    stated: float | None = None
    p: float | None = None

    def describe_doubts(self) -> Iterator[str]:
        """Yield the reasons to doubt that the table contains outputs of the model."""
        if self.differing:
            yield (
                f"in table {self.table}, {self.differing} of {self.repeats} images that were handed out twice have two "
                f"different outputs ({REPEATS})"
            )
        if self.stated is not None and self.p is not None and self.p < MISSED:
            yield (
                f"table {self.table} names the correct label of {self.right} of {self.labelled} images, although the "
                f"stated accuracy is {100 * self.stated:.3g} % (p = {self.p:.2g}; {MISSES})"
            )


@dataclass(frozen=True)
class PanelEvidence:
    """Evidence for the answer, from rows of the summary.

    `names` contains the (metric, setting) keys of these rows, the decisive one first. `overriding_rank` is the rank
    compared with references, or by the weights of the first layer; it decides instead of `rank`, the rank in the
    family. It is None if there is neither. `parts` contains the ranks among the look-alikes of each part, by the
    decisive score; it is empty if they were not requested. `tied` is the summary row with the share of tied scores in
    the family. `checks` contains the results for the returned tables, except for the `unchecked` ones, and `key` is the
    beginning of the SHA-256 of the export. `lacks_overriding_rank` is True if `overriding_rank` is needed but missing.
    """

    names: tuple[Name, ...]
    rank: Rank
    overriding_rank: Rank | None
    parts: tuple[Rank, ...]
    push: Push
    tied: Row | None
    checks: tuple[TableCheck, ...]
    unchecked: int
    key: str
    lacks_overriding_rank: bool

    @property
    def deciding_rank(self) -> Rank:
        return self.rank if self.overriding_rank is None else self.overriding_rank

    @property
    def differing_parts(self) -> tuple[int, ...]:
        """The parts, from 1, by which the feature is not distinguished from its look-alikes."""
        return tuple(number for number, rank in enumerate(self.parts, start=1) if not rank.is_small)

    @property
    def is_told_apart(self) -> bool:
        """Whether the feature is distinguished from the look-alikes of every part."""
        return bool(self.parts) and not self.differing_parts

    @property
    def is_clear(self) -> bool:
        """Whether no rank is small, and a relevant push is excluded and would have been found."""
        ranks = (self.rank, self.overriding_rank) if self.overriding_rank is not None else (self.rank,)
        if self.lacks_overriding_rank or any(rank.is_small for rank in ranks):
            return False
        return self.push.is_excluded and self.push.power >= ENOUGH

    def describe_doubts(self) -> str:
        """Return the reasons to doubt the tables, or an empty string if there are none."""
        doubts = [words for check in self.checks for words in check.describe_doubts()]
        if self.unchecked:
            tables = self.unchecked + len(self.checks)
            doubts.append(f"the images handed out twice could not be checked in {self.unchecked} of {tables} tables")
        return " and ".join(doubts)


def read_panel_evidence(config: UniqueFeature, rows: Rows) -> PanelEvidence | None:
    """Read the evidence from the first row of each metric. Returns None if no model has been evaluated."""
    overriding_metric, parts_metric = deciding_metrics(config)
    push = first_row(rows, PUSH)
    rank = first_row(rows, RANK)
    others_row = first_row(rows, OTHERS)
    if overriding_metric is None:
        overriding_row = None
    else:
        overriding_row = first_row(rows, overriding_metric)
    if push is None or rank is None or others_row is None or push["estimate"] is None:
        return None
    power_row = first_row(rows, FOUND)
    upper = first_row(rows, UPPER)
    setting = read_setting(push)
    checks, key = _read_checks(rows)
    return PanelEvidence(
        names=names_of(overriding_row, rank, push, others_row),
        rank=Rank(round(rank["estimate"]), rank["p_value"], Population(others_row["n"] + 1), rank["n"]),
        overriding_rank=None if overriding_row is None else _read_overriding_rank(overriding_row),
        parts=tuple(map(_read_part_rank, select_rows(rows, parts_metric))),
        push=Push(
            value=push["estimate"],
            label=None if setting["label known"] else setting["label"],
            family_range=None if others_row["low"] is None else (others_row["low"], others_row["high"]),
            upper=None if upper is None else upper["estimate"],
            smallest=SMALLEST if power_row is None else read_setting(power_row)["nats"],
            power=0.0 if power_row is None else power_row["estimate"],
        ),
        tied=most_tied(rows),
        checks=checks,
        unchecked=max(0, _count_tables(config) - len(checks)),
        key=key,
        lacks_overriding_rank=overriding_metric is not None and overriding_row is None,
    )


def deciding_metrics(config: UniqueFeature) -> tuple[str | None, str]:
    """Return the metric of the rank that decides in place of the family's, if any, and the metric of the parts."""
    if has_references(config):
        return REFERENCE_RANK, REFERENCE_PART_RANK
    if reads_weights(config):
        return (BY_WEIGHTS, BY_WEIGHTS_PARTS)
    return (None, PART_RANK)


def _read_overriding_rank(row: Row) -> Rank:
    setting = read_setting(row)
    population = Population.from_setting(setting)
    return Rank(round(row["estimate"]), row["p_value"], population, row["n"], setting.get("references", 0))


def _read_part_rank(row: Row) -> Rank:
    setting = read_setting(row)
    population = Population(setting["others"] + 1)
    return Rank(round(row["estimate"]), row["p_value"], population, row["n"], setting.get("references", 0))


def _read_checks(rows: Rows) -> tuple[tuple[TableCheck, ...], str]:
    """Read the checks of every table, and the beginning of the key's SHA-256."""
    labels = {read_setting(row)["table"]: row for row in select_rows(rows, LABELS)}
    checks = []
    key = ""
    for row in select_rows(rows, TWICE):
        setting = read_setting(row)
        key = key or setting["key"]
        labels_row = labels.get(setting["table"])
        check = TableCheck(setting["table"], row["n"], round((row["estimate"] or 0.0) * row["n"]))
        if labels_row is not None:
            right = numerator(labels_row)
            stated = labels_row["null"]
            check = replace(check, labelled=labels_row["n"], right=right, stated=stated, p=labels_row["p_value"])
        checks.append(check)
    return tuple(checks), key


def evaluates_single_models(config: UniqueFeature) -> bool:
    return config.single_models is not None


def asks_one_family(config: UniqueFeature) -> bool:
    return evaluates_single_models(config) and isinstance(_judging_rank(config), AnswerRank)


def has_references(config: UniqueFeature) -> bool:
    return isinstance(_judging_rank(config), ReferenceRank)


def reads_weights(config: UniqueFeature) -> bool:
    return isinstance(_judging_rank(config), FirstLayerRank)


def reads_tables(config: UniqueFeature) -> bool:
    return _count_tables(config) > 0


def _judging_rank(config: UniqueFeature) -> JudgedBy | None:
    """Return the rank by which single models are judged, or None if the question is about pairs."""
    if config.single_models is None:
        return None
    return config.single_models.judged_by


def _count_tables(config: UniqueFeature) -> int:
    """Return the number of output tables that an owner returned."""
    return 0 if config.given is None else len(config.given.outputs)
