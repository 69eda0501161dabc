"""Shares of drawn features that are detected, compared with the limit from differential privacy."""

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
from tasks.audits.unique_feature import plan as plan_audit
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


def rank_table(p_values: Sequence[float | None], epsilon: float = 2.0, seeds: Sequence[int] | None = None) -> pa.Table:
    """A canary for each p-value of the model that was trained with it."""
    return pa.Table.from_pylist(
        [
            {"canary": i, "seed": seeds[i] if seeds else i, "epsilon": epsilon, "delta": DELTA, "spent": 0.99 * epsilon}
            | {"p_value": p, "among": None if p is None else ALL_GLYPHS}
            for i, p in enumerate(p_values)
        ],
        PRIVATE_RANKS,
    )


def summary_rows(*tables: pa.Table) -> dict[tuple[str, float | str | None], Row]:
    """The rows of the summary by metric and level or bound."""
    all_rows = list(rows(Tables(tables), None))
    settings = [json.loads(row["setting"]) for row in all_rows]
    names = [setting.get("level", setting.get("bound")) for setting in settings]
    result = {}
    for row, name in zip(all_rows, names, strict=True):
        result[(row["metric"], name)] = row
    return result


def test_detected_share_is_compared_with_the_privacy_limit() -> None:
    summary_by_name = summary_rows(rank_table([0.04, 0.5, 0.0005, 0.9, 0.3, 0.2, 0.06, 0.7, 0.8, 0.1]))
    share = summary_by_name["share found by one model", 0.05]
    assert tuple(share[name] for name in ("estimate", "n", "unit", "null")) == (0.2, 10, "training", 0.05)
    assert pytest.approx([share["low"], share["high"]], abs=1e-5) == [0.02521, 0.55610]  # 2 of 10, exactly
    bound = summary_by_name["largest share that privacy allows", 0.05]
    assert bound["estimate"] == pytest.approx(0.05 * math.exp(2) + DELTA)
    assert bound["p_value"] > 0.5
    assert {name for _, name in summary_by_name} == {0.05, 0.01, 0.001, "many runs", "many runs, Gaussian", None}
    assert summary_by_name["share found by one model", 0.001]["estimate"] == 0.1
    assert summary_by_name["epsilon by the accountant", None]["estimate"] == pytest.approx(1.98)
    assert 0.0 <= summary_by_name["epsilon, at least", "many runs"]["estimate"] < 2.0


def test_broken_guarantee_is_detected() -> None:
    summary_by_name = summary_rows(rank_table([1e-6] * 12, epsilon=1.0))
    assert summary_by_name["largest share that privacy allows", 0.05]["p_value"] < 1e-6
    share = summary_by_name["share found by one model", 0.05]
    bound = summary_by_name["largest share that privacy allows", 0.05]
    assert share["low"] > bound["estimate"]
    assert summary_by_name["epsilon, at least", "many runs"]["estimate"] > 1.0
    # All 12 are detected, so this is the largest epsilon that can be shown: (.05 / 3) ** (1 / 12) is the
    # Clopper-Pearson limit of the power.
    largest_epsilon = math.log(((0.05 / 3) ** (1 / 12) - DELTA) / 0.001)
    for metric in ("epsilon, at least", "epsilon that so many could show"):
        assert summary_by_name[metric, "many runs"]["estimate"] == pytest.approx(largest_epsilon, abs=1e-6)


def test_epsilon_bound_rarely_exceeds_the_truth() -> None:
    # p-values of a mechanism that reveals the maximum for its epsilon at every level; 2.5 % of runs are wrong.
    epsilon = 1.0
    canaries = 40
    runs = 2000
    rng = np.random.default_rng(5)

    @functools.cache
    def epsilon_bound(*counts: int) -> float:
        p_values = np.repeat([0.0005, 0.005, 0.04, 0.9], np.diff([0, *counts, canaries]))
        return float(summary_rows(rank_table(list(p_values), epsilon))["epsilon, at least", "many runs"]["estimate"])

    u = rng.random((runs, canaries))
    p_values = np.where(u <= math.e / (1 + math.e), u / math.e, 1 - (1 - u) * math.e)
    counts = []
    for level in (0.001, 0.01, 0.05):
        counts.append((p_values <= level).sum(axis=1).tolist())
    false_bounds = sum(epsilon_bound(*run_counts) > epsilon for run_counts in zip(*counts, strict=True))
    assert 0 < false_bounds <= 0.05 * runs


def test_canaries_of_one_seed_have_no_test() -> None:
    summary_by_name = summary_rows(rank_table([0.01, 0.02, 0.5], seeds=[7, 7, 7]))
    assert tuple(summary_by_name["share found by one model", 0.05][end] for end in ("low", "high")) == (None, None)
    assert summary_by_name["largest share that privacy allows", 0.05]["p_value"] is None
    assert ("epsilon, at least", "many runs") not in summary_by_name


def test_first_rank_of_a_repeated_canary_counts() -> None:
    repeated_rows = rank_table([0.01, 0.5]).to_pylist() + [
        row | {"seed": 9, "p_value": 0.001} for row in rank_table([0.4]).to_pylist()
    ]
    summary_by_name = summary_rows(pa.Table.from_pylist(repeated_rows, PRIVATE_RANKS))
    assert tuple(summary_by_name["share found by one model", 0.05][name] for name in ("estimate", "n")) == (0.5, 2)
    assert summary_by_name["epsilon by the accountant", None]["n"] == 3


def test_missing_ranks_leave_only_the_spent_epsilon() -> None:
    assert set(summary_rows(rank_table([None, None]))) == {("epsilon by the accountant", None)}
    assert summary_rows() == {}


def test_row_has_the_rank_of_a_drawn_feature() -> None:
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


def test_only_private_pairs_have_private_ranks() -> None:
    plain, *private = (
        with_settings(config, data=pin(Dataset("digits")), probe=pin(config.probe)) for config in configs_of("ladder")
    )
    assert "private_ranks" not in plan_audit(plain)
    assert [
        config_of_ladder.privacy and config_of_ladder.privacy.epsilon for config_of_ladder in (plain, *private)
    ] == [None, 64.0, 16.0, 4.0, 1.0]
    for config in private:
        assert config.question.canaries == len(plan_audit(config)["private_ranks"])  # type: ignore[arg-type]
        jobs = Plan.from_roots(plan_audit(config)).jobs.values()
        models = []
        for job in jobs:
            if marks(job.function).name == "classifier.train":
                models.append(job.config)
        # a canary model and its control model are trained identically
        assert 2 * config.question.canaries == len(models)
        assert {model.privacy for model in models} == {config.privacy}


def configs_of(preset: str) -> tuple[UniqueFeature, ...]:
    cells = PRESETS[preset]
    return cells if isinstance(cells, tuple) else (cells,)
