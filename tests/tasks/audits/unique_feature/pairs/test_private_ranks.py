"""Shares of drawn features that are found, compared with those that differential privacy allows."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan
from tasks.audits.unique_feature import PRESETS, UniqueFeature
from tasks.audits.unique_feature import plan as planned
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.pairs.private_ranks import PRIVATE_RANKS, PrivateRank, private_rank, rows
from tasks.contract.job import marks
from tasks.contract.measure import Tables
from tasks.contract.schemas import PRIVATE_MODEL
from tasks.contract.summaries import Row
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.training.recipe import Privacy
from tests.support.settings import with_settings

ALL_GLYPHS = 4_457_400
DELTA = 1e-5


def ranked(p_values: Sequence[float | None], epsilon: float = 2.0, seeds: Sequence[int] | None = None) -> pa.Table:
    """A canary for each of the p-values of the model that was trained with it."""
    return pa.Table.from_pylist(
        [
            {"canary": i, "seed": seeds[i] if seeds else i, "epsilon": epsilon, "delta": DELTA, "spent": 0.99 * epsilon}
            | {"p_value": p, "among": None if p is None else ALL_GLYPHS}
            for i, p in enumerate(p_values)
        ],
        PRIVATE_RANKS,
    )


def summed(*tables: pa.Table) -> dict[tuple[str, float | str | None], Row]:
    """The rows of the summary by metric, and level or bound."""
    found = list(rows(Tables(tables), None))
    settings = [json.loads(row["setting"]) for row in found]
    names = [setting.get("level", setting.get("bound")) for setting in settings]
    return {(row["metric"], name): row for row, name in zip(found, names, strict=True)}


def test_the_share_found_stands_beside_the_largest_that_epsilon_allows() -> None:
    found = summed(ranked([0.04, 0.5, 0.0005, 0.9, 0.3, 0.2, 0.06, 0.7, 0.8, 0.1]))
    share = found["share found by one model", 0.05]
    assert tuple(share[name] for name in ("estimate", "n", "unit", "null")) == (0.2, 10, "training", 0.05)
    assert pytest.approx([share["low"], share["high"]], abs=1e-5) == [0.02521, 0.55610]  # 2 of 10, exactly
    bound = found["largest share that privacy allows", 0.05]
    assert bound["estimate"] == pytest.approx(0.05 * math.exp(2) + DELTA)
    assert bound["p_value"] > 0.5
    assert {0.05, 0.01, 0.001, "many runs", "many runs, Gaussian", None} == {name for _, name in found}
    assert found["share found by one model", 0.001]["estimate"] == 0.1
    assert found["epsilon by the accountant", None]["estimate"] == pytest.approx(1.98)
    assert 0.0 <= found["epsilon, at least", "many runs"]["estimate"] < 2.0


def test_a_broken_guarantee_shows() -> None:
    found = summed(ranked([1e-6] * 12, epsilon=1.0))
    assert found["largest share that privacy allows", 0.05]["p_value"] < 1e-6
    share, bound = found["share found by one model", 0.05], found["largest share that privacy allows", 0.05]
    assert share["low"] > bound["estimate"]
    assert found["epsilon, at least", "many runs"]["estimate"] > 1.0
    # All 12 tell, so that no more could be shown: (.05 / 3) ** (1 / 12) is Clopper and Pearson's limit of the power.
    most = math.log(((0.05 / 3) ** (1 / 12) - DELTA) / 0.001)
    for metric in ("epsilon, at least", "epsilon that so many could show"):
        assert found[metric, "many runs"]["estimate"] == pytest.approx(most, abs=1e-6)


def test_the_epsilon_that_ranks_show_is_above_the_true_one_in_few_runs() -> None:
    # p-values of a mechanism that reveals as much as its epsilon allows, at every level; 2.5 % of runs are wrong.
    epsilon, canaries, runs, chance = 1.0, 40, 2000, np.random.default_rng(5)

    @functools.cache
    def shown(*counts: int) -> float:
        p_values = np.repeat([0.0005, 0.005, 0.04, 0.9], np.diff([0, *counts, canaries]))
        return float(summed(ranked(list(p_values), epsilon))["epsilon, at least", "many runs"]["estimate"])

    u = chance.random((runs, canaries))
    p_values = np.where(u <= math.e / (1 + math.e), u / math.e, 1 - (1 - u) * math.e)
    counts = [(p_values <= level).sum(axis=1).tolist() for level in (0.001, 0.01, 0.05)]
    wrong = sum(shown(*each) > epsilon for each in zip(*counts, strict=True))
    assert 0 < wrong <= 0.05 * runs


def test_canaries_of_one_seed_have_neither_interval_nor_test() -> None:
    found = summed(ranked([0.01, 0.02, 0.5], seeds=[7, 7, 7]))
    assert tuple(found["share found by one model", 0.05][end] for end in ("low", "high")) == (None, None)
    assert found["largest share that privacy allows", 0.05]["p_value"] is None
    assert ("epsilon, at least", "many runs") not in found


def test_of_a_canary_that_was_trained_twice_the_first_rank_counts() -> None:
    twice = ranked([0.01, 0.5]).to_pylist() + [row | {"seed": 9, "p_value": 0.001} for row in ranked([0.4]).to_pylist()]
    found = summed(pa.Table.from_pylist(twice, PRIVATE_RANKS))
    assert tuple(found["share found by one model", 0.05][name] for name in ("estimate", "n")) == (0.5, 2)
    assert found["epsilon by the accountant", None]["n"] == 3


def test_without_exact_ranks_there_is_only_what_was_spent() -> None:
    assert {("epsilon by the accountant", None)} == set(summed(ranked([None, None])))
    assert summed() == {}


def test_a_row_has_the_rank_by_the_one_model_of_a_drawn_feature() -> None:
    model = pa.Table.from_pylist([{"seed": 4, "epsilons": [0.5, 1.5]}], PRIVATE_MODEL)
    kinds = [("pair", "canary", 0.1), ("references", "canary", 0.2), ("references", "other", 0.3)]

    def ranks(drawn: bool) -> pa.Table:
        return pa.Table.from_pylist(
            [{"score": s, "feature": f, "p_value": p, "among": 9, "drawn": drawn} for s, f, p in kinds], EXACT_RANKS
        )

    config = PrivateRank(3, Privacy(2.0))
    (row,) = private_rank(config, [model, ranks(True)]).to_pylist()
    assert row == {"canary": 3, "seed": 4, "spent": 1.5, "epsilon": 2.0, "delta": 1e-5, "p_value": 0.2, "among": 9}
    for inputs in ([model], [model, ranks(False)]):
        assert private_rank(config, inputs)["p_value"].to_pylist() == [None]


def test_only_private_pairs_are_planned() -> None:
    plain, *private = (
        with_settings(config, data=pin(Dataset("digits")), probe=pin(config.probe)) for config in cells("ladder")
    )
    assert "private_ranks" not in planned(plain)
    assert [each.privacy and each.privacy.epsilon for each in (plain, *private)] == [None, 64.0, 16.0, 4.0, 1.0]
    for config in private:
        assert config.question.canaries == len(planned(config)["private_ranks"])  # type: ignore[arg-type]
        jobs = Plan.from_roots(planned(config)).jobs.values()
        models = [job.config for job in jobs if marks(job.function).name == "classifier.train"]
        assert 2 * config.question.canaries == len(models)  # a control model and its canary train the same way
        assert {config.privacy} == {model.privacy for model in models}


def cells(preset: str) -> tuple[UniqueFeature, ...]:
    found = PRESETS[preset]
    return found if isinstance(found, tuple) else (found,)
