"""What the summary says of pairs of trainings: the effect, the canaries that are called, bets and guarantees."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.audits.unique_feature.measures.canary_scores import EFFECT
from tasks.audits.unique_feature.measures.canary_verdicts import BEYOND, CALLED, SHARED, TOTAL_BETS
from tasks.audits.unique_feature.measures.evidence import BETS
from tasks.audits.unique_feature.measures.evidence import LEVEL as BET_LEVEL
from tasks.audits.unique_feature.measures.private_ranks import ALLOWED, ONE_MODEL
from tasks.audits.unique_feature.population import LEVEL, SMALLEST, Population
from tasks.contract.summaries import Name, Row, Rows, first_row, name_of, numerator, read_setting, row_name
from tasks.numerics import betting

SURELY = 0.001  # so small a p-value of the number of small ranks says that some canary is remembered, whichever it is
# The interval's lower end accuses at 2.5 %. With fewer pairs of trainings no assumption-free test reaches that, even if
# all of them agree: 2**-5 is above it.
LEAST = 6


@dataclass(frozen=True)
class Calls:
    """How many of `n` canaries are called one by one, each by its rank in the `population`.

    `beyond` is the summary row of the share that is found beyond chance where p is at most `level`; None without it.
    """

    called: int
    n: int
    population: Population
    share_seeds: bool
    beyond: Row | None
    level: float

    @property
    def beyond_p(self) -> float | None:
        """How often chance brings as many small ranks; None where nothing says it."""
        return None if self.beyond is None or self.share_seeds else self.beyond["p_value"]

    @property
    def accuses(self) -> bool:
        return self.called > 0 and not self.share_seeds

    @property
    def are_surely_small(self) -> bool:
        return self.beyond_p is not None and self.beyond_p <= SURELY

    @property
    def are_by_chance(self) -> bool:
        """Whether no canary is called, one could have been, and no more ranks are small than chance brings."""
        few = self.beyond_p is None or self.beyond_p > LEVEL
        return not self.called and not self.share_seeds and few and self.population.fewest_called(self.n) <= 1


@dataclass(frozen=True)
class Guarantee:
    """What differential privacy allows one model to show of `n` drawn features at a level, and what it showed."""

    epsilon: float
    delta: float
    level: float
    allowed: float
    found: int
    n: int


@dataclass(frozen=True)
class Bets:
    """The largest product of the bets on the ranks of the first 1, 2, ... `n` pairs; it accuses from 1 / level on."""

    largest: float
    level: float
    n: int

    @property
    def accuse(self) -> bool:
        return betting.is_decided(self.largest, self.level)


@dataclass(frozen=True)
class PairEvidence:
    """What the answer rests on.

    `effect` is the summary row of the effect on M_w over the probe images, None where no pair was scored; `names` are
    the (metric, setting) of the rows of effect and calls that there are. `published` are the models, of how many, that
    the published test calls memorised: canaries' and twins'. `bets` are those of a run that ends once it is decided.
    `look` is which look it is at these pairs, and `total_bets` the summary row of the bets on all ranks, by which a
    second or later look at a fixed number of pairs accuses; None without ranks that are independent.
    """

    names: tuple[Name, ...]
    effect: Row | None
    calls: Calls | None
    guarantee: Guarantee | None
    published: tuple[tuple[int, int], ...]
    bets: Bets | None = None
    look: int = 1
    total_bets: Row | None = None

    @property
    def fixed_rules_decide(self) -> bool:
        """Whether rules for one look may accuse: at the first look, and at later ones if no rank could be bet on."""
        return self.look == 1 or self.total_bets is None

    @property
    def later_bets_accuse(self) -> bool:
        """Whether the bets on all ranks accuse at a second or later look."""
        return self.look > 1 and self.total_bets is not None and betting.is_decided(self.total_bets["estimate"], LEVEL)

    @property
    def has_interval(self) -> bool:
        return self.effect is not None and self.effect["low"] is not None

    @property
    def effect_decides(self) -> bool:
        """Whether so many pairs agree that an interval over them means something."""
        return self.effect is not None and self.has_interval and bool(self.effect["n"] >= LEAST)

    @property
    def effect_is_above(self) -> bool:
        return self.effect is not None and self.effect_decides and bool(self.effect["low"] > 0)

    @property
    def effect_is_excluded(self) -> bool:
        """Whether an effect of SMALLEST is excluded, and would have shown."""
        effect = self.effect
        if effect is None or not self.effect_decides:
            return False
        return bool(effect["high"] < SMALLEST and (effect["high"] - effect["low"]) / 2 < SMALLEST)


def read_pair_evidence(rows: Rows, look: int = 1) -> PairEvidence:
    """The evidence in the rows of a summary, which is read at this look."""
    effect, called, beyond = rows.get(EFFECT), first_row(rows, CALLED), first_row(rows, BEYOND)
    bets, total_bets = first_row(rows, BETS), first_row(rows, TOTAL_BETS)
    later = total_bets if look > 1 and bets is None else None
    rates = (rows.get(row_name("rate called memorised", model=model, test="welch")) for model in ("canary", "twin"))
    return PairEvidence(
        names=tuple(name_of(row) for row in (effect, called, beyond, bets, later) if row is not None),
        effect=effect if effect is not None and effect["n"] and effect["estimate"] is not None else None,
        calls=None if called is None or not called["n"] else read_calls(called, beyond),
        guarantee=read_guarantee(rows),
        published=tuple((numerator(rate), rate["n"]) for rate in rates if rate is not None and rate["n"]),
        bets=None if bets is None else Bets(bets["estimate"], read_setting(bets)[BET_LEVEL], bets["n"]),
        look=look,
        total_bets=total_bets,
    )


def read_calls(called: Row, beyond: Row | None) -> Calls:
    setting = read_setting(called)
    return Calls(
        called=numerator(called),
        n=called["n"],
        population=Population.from_setting(setting),
        share_seeds=SHARED in setting,
        beyond=beyond,
        level=LEVEL if beyond is None else read_setting(beyond)["p"],
    )


def read_guarantee(rows: Rows) -> Guarantee | None:
    """At the first level of which there is one."""
    share, bound = first_row(rows, ONE_MODEL), first_row(rows, ALLOWED)
    if share is None or bound is None:
        return None
    return Guarantee(**read_setting(bound), allowed=bound["estimate"], found=numerator(share), n=share["n"])
