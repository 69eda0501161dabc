"""The evidence about pairs of training runs in the summary: effect, found canaries, bets and guarantees."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.unique_feature.pairs.bets import BETS, DETECTED
from tasks.audits.unique_feature.pairs.bets import LEVEL as BET_LEVEL
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT, LARGEST
from tasks.audits.unique_feature.pairs.canary_verdicts import (
    BEYOND,
    CALLED,
    MEMORISED,
    MEMORISED_BETS,
    MEMORISED_BEYOND,
    SHARED,
    TOTAL_BETS,
)
from tasks.audits.unique_feature.pairs.private_ranks import ALLOWED, ONE_MODEL
from tasks.audits.unique_feature.population import LEVEL, Population
from tasks.contract.power import SMALLEST, Resolution
from tasks.contract.summaries import Name, Row, Rows, first_row, names_of, numerator, read_setting, row_name
from tasks.contract.ties import TIED
from tasks.numerics import betting

SURELY = 0.001  # p-value at or below which the number of small ranks shows memory of some canary
# The lower end of the interval has an error of 2.5 %. With fewer pairs of training runs, no distribution-free test
# reaches this level, even if all pairs agree: 2**-5 is larger.
LEAST = 6


@dataclass(frozen=True)
class Calls:
    """How many of the `n` canaries are found individually (`count`), each by its rank in the `population`.

    `excess` is the summary row of the share that is found beyond chance at p-values of at most `level`, or None if
    there is no such row. `memorised` and `memorised_excess` are the same for effects reduced by the smallest relevant
    one; they are None for ranks that are not in nats. For those, `largest`, the largest effect of a canary, shows
    whether any effect is relevant.
    """

    count: int
    n: int
    population: Population
    share_seeds: bool
    excess: Row | None
    level: float
    memorised: int | None = None
    memorised_excess: Row | None = None
    largest: float | None = None

    @property
    def resolution(self) -> Resolution:
        """Whether a single remembered canary could have been found."""
        return self.population.resolution(self.n)

    @property
    def have_size(self) -> bool:
        """Whether a canary's effect exceeds the smallest relevant one, for ranks that are not in nats."""
        return self.largest is not None and self.largest > SMALLEST

    @property
    def excess_p(self) -> float | None:
        """The p-value of the number of small ranks, or None if it is unknown."""
        return None if self.excess is None or self.share_seeds else self.excess["p_value"]

    @property
    def accuses(self) -> bool:
        """Whether a canary is found with an effect that matters."""
        if self.memorised is None:
            memorised = self.count > 0 and self.have_size
        else:
            memorised = self.memorised > 0
        return memorised and not self.share_seeds

    @property
    def are_surely_small(self) -> bool:
        """Whether the p-value of the number of small ranks with relevant effects is at most SURELY."""
        return self.deciding_p is not None and self.deciding_p <= SURELY

    @property
    def deciding_p(self) -> float | None:
        """The p-value of the number of small ranks with relevant effects, or None if it is unknown."""
        if self.share_seeds:
            return None
        if self.memorised is None:
            return self.excess_p if self.have_size else None
        return None if self.memorised_excess is None else self.memorised_excess["p_value"]

    @property
    def is_detected(self) -> bool:
        """Whether the ranks would accuse if effects of any size counted."""
        has_calls = self.count > 0 and not self.share_seeds
        return has_calls or (self.excess_p is not None and self.excess_p <= SURELY)

    @property
    def are_by_chance(self) -> bool:
        """Whether no canary is found, and the number of small ranks agrees with chance."""
        few = self.excess_p is None or self.excess_p > LEVEL
        return not self.count and not self.share_seeds and few


@dataclass(frozen=True)
class Guarantee:
    """The share of `n` drawn features that privacy allows one model to reveal at a level, and how many it revealed."""

    epsilon: float
    delta: float
    level: float
    allowed: float
    revealed: int
    n: int


@dataclass(frozen=True)
class Bets:
    """The largest product of the bets on the ranks of the first 1, 2, ... `n` pairs. It accuses if it reaches 1 /
    level.
    """

    largest: float
    level: float
    n: int
    detected: float = 0.0
    """The largest product of the bets on ranks of effects of any size."""

    @property
    def detect(self) -> bool:
        return betting.is_decided(self.detected, self.level)

    @property
    def accuse(self) -> bool:
        return betting.is_decided(self.largest, self.level)


@dataclass(frozen=True)
class PairEvidence:
    """The evidence that decides the answer.

    `effect` is the summary row of the effect on M_w over the probe images, or None if no pair was scored. `names`
    contains the (metric, setting) keys of the available rows of effect and calls. `published` holds, for canary models
    and for control models, how many the published test calls memorised and how many it tests. `bets` are None unless
    the run ends once it is decided, and `tied` is the row on tied ranked scores. `look` is the number of this look at
    these pairs.

    `total_bets` is the summary row of the bets on all ranks, which decides detection at a second or later look at a
    fixed number of pairs. `memorised_bets` is the same for effects reduced by the smallest relevant one, which decides
    *memorised*. Both are None if ranks are not independent; the latter also if they are not in nats.
    """

    names: tuple[Name, ...]
    effect: Row | None
    calls: Calls | None
    guarantee: Guarantee | None
    published: tuple[tuple[int, int], ...]
    bets: Bets | None = None
    tied: Row | None = None
    look: int = 1
    total_bets: Row | None = None
    memorised_bets: Row | None = None

    @property
    def is_detected(self) -> bool:
        """Whether any evidence would accuse if effects of any size counted.

        In a run until decided, only the bets count; otherwise, the other rules do.
        """
        if self.bets is not None:
            return self.bets.detect
        if not self.fixed_rules_decide:
            return self.later_bets_detect
        return self.effect_is_above_zero or (self.calls is not None and self.calls.is_detected)

    @property
    def effect_is_above_zero(self) -> bool:
        return self.effect is not None and self.effect_decides and bool(self.effect["low"] > 0)

    @property
    def finds_one(self) -> bool:
        return self.calls is not None and self.calls.resolution.finds_one

    @property
    def fixed_rules_decide(self) -> bool:
        """Whether the rules made for a single look may accuse.

        They may at the first look. At later looks, bets on the ranks replace them, unless the run has no ranks to bet
        on.
        """
        return self.look == 1 or self.total_bets is None

    @property
    def deciding_bets(self) -> Row | None:
        """The bets by which a later look accuses: bets on reduced effects, or on all ranks if these are not in nats."""
        if self.memorised_bets is not None:
            return self.memorised_bets
        if self.calls is not None and self.calls.have_size:
            return self.total_bets
        return None

    @property
    def later_bets_accuse(self) -> bool:
        """Whether the bets on ranks of relevant effects accuse at a second or later look."""
        return self.look > 1 and _have_decided(self.deciding_bets)

    @property
    def later_bets_detect(self) -> bool:
        """Whether the bets on all ranks, for effects of any size, are decided at a second or later look."""
        return self.look > 1 and _have_decided(self.total_bets)

    @property
    def has_interval(self) -> bool:
        return self.effect is not None and self.effect["low"] is not None

    @property
    def effect_decides(self) -> bool:
        """Whether there are enough pairs for an interval that decides."""
        return self.effect is not None and self.has_interval and bool(self.effect["n"] >= LEAST)

    @property
    def effect_is_above(self) -> bool:
        return self.effect is not None and self.effect_decides and bool(self.effect["low"] > SMALLEST)

    @property
    def effect_is_excluded(self) -> bool:
        """Whether an effect of SMALLEST is excluded and would have been detected."""
        effect = self.effect
        if effect is None or not self.effect_decides:
            return False
        return bool(effect["high"] < SMALLEST and (effect["high"] - effect["low"]) / 2 < SMALLEST)


def read_pair_evidence(rows: Rows, look: int = 1) -> PairEvidence:
    """Read the evidence at this look from the rows of a summary."""
    effect = rows.get(EFFECT)
    called_row = first_row(rows, CALLED)
    beyond_row = first_row(rows, BEYOND)
    bets = first_row(rows, BETS)
    detected = first_row(rows, DETECTED)
    largest = first_row(rows, LARGEST)
    total_bets = first_row(rows, TOTAL_BETS)
    memorised_bets = first_row(rows, MEMORISED_BETS)
    later = []
    if look > 1 and bets is None:
        later = [memorised_bets, total_bets]
    rates = (rows.get(row_name("rate called memorised", model=model, test="welch")) for model in ("canary", "twin"))
    return PairEvidence(
        names=names_of(effect, called_row, beyond_row, bets, *later),
        effect=effect if effect is not None and effect["n"] and effect["estimate"] is not None else None,
        calls=None if called_row is None or not called_row["n"] else _read_calls(rows, called_row, beyond_row, largest),
        guarantee=_read_guarantee(rows),
        published=tuple((numerator(rate), rate["n"]) for rate in rates if rate is not None and rate["n"]),
        bets=None if bets is None else _read_bets(bets, detected),
        tied=first_row(rows, TIED),
        look=look,
        total_bets=total_bets,
        memorised_bets=memorised_bets,
    )


def _have_decided(bets: Row | None) -> bool:
    return bets is not None and betting.is_decided(bets["estimate"], LEVEL)


def _read_bets(bets: Row, detected: Row | None) -> Bets:
    if detected is None:
        largest = bets["estimate"]
    else:
        largest = detected["estimate"]
    return Bets(bets["estimate"], read_setting(bets)[BET_LEVEL], bets["n"], largest)


def _read_calls(rows: Rows, called_row: Row, beyond_row: Row | None, largest: Row | None) -> Calls:
    setting = read_setting(called_row)
    memorised = first_row(rows, MEMORISED)
    return Calls(
        count=numerator(called_row),
        n=called_row["n"],
        population=Population.from_setting(setting),
        share_seeds=SHARED in setting,
        excess=beyond_row,
        level=LEVEL if beyond_row is None else read_setting(beyond_row)["p"],
        memorised=None if memorised is None else numerator(memorised),
        memorised_excess=first_row(rows, MEMORISED_BEYOND),
        largest=None if largest is None else largest["estimate"],
    )


def _read_guarantee(rows: Rows) -> Guarantee | None:
    """Return the guarantee at the first available level."""
    share = first_row(rows, ONE_MODEL)
    bound = first_row(rows, ALLOWED)
    if share is None or bound is None:
        return None
    return Guarantee(**read_setting(bound), allowed=bound["estimate"], revealed=numerator(share), n=share["n"])
