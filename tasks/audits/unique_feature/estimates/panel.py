"""What models that were asked alone say together: the feature's rank among its family, and the published score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature import ranks
from tasks.audits.unique_feature.estimates.effects import LEVEL
from tasks.audits.unique_feature.estimates.power import needed
from tasks.audits.unique_feature.relatives import by_model
from tasks.audits.unique_feature.scores import black_box_score, spread
from tasks.statistics import mean, proportion, welch_greater
from tasks.summaries import Row, alone, row


def family(tables: Sequence[pa.Table]) -> Iterator[Row]:
    """The push towards a label with its exact rank p-value, all models together, and the rank of KL.

    With several models their standardised scores are averaged, so that the panel has one p-value.
    """
    found = [each for table in tables for each in by_model(table)]
    if not found:
        return
    label = found[0].label
    log_p = np.stack([said.log_p for said in found])
    d = np.stack([said.d for said in found])
    members = log_p.shape[1]
    estimate, null = ranks.push(log_p, np.stack([said.log_odds for said in found]), label)
    p_value = ranks.rank_p_value(ranks.label_directed(log_p, label))
    asked = {"label": ranks.favoured(log_p, label), "label known": label is not None}
    yield row("push towards a label", asked, estimate, "model", null, p_value)
    yield row("rank among the family", {}, alone(p_value * members, len(found)), "model", (members + 1) / 2, p_value)
    kl = ranks.standardised(d[..., None]).mean(axis=0)[:, 0]
    above = float((d[:, 0] - d[:, 1:].mean(axis=1)).mean())
    yield row("KL above the family", {}, alone(above, len(found)), "model", 0.0, ranks.rank_p_value(kl))


def divergences(tables: Sequence[pa.Table]) -> Iterator[Row]:
    """M as published, how many models its t-test calls memorised, and how many probe images it needs."""
    columns = [{name: table[name].to_numpy().astype(np.float64) for name in ("d_u", "d_r")} for table in tables]
    scores = [black_box_score(each["d_u"], each["d_r"]) for each in columns]
    yield row("M", {"model": "given"}, mean([score for score in scores if score is not None]), "model")
    p_values = [welch_greater(each["d_u"], each["d_r"]).p_value for each in columns]
    called = [p_value is not None and p_value < LEVEL for p_value in p_values]
    rate = proportion(sum(called), len(called))
    yield row("rate called memorised", {"model": "given", "test": "welch"}, rate, "model")
    spreads = [sd for each in columns if (sd := spread(each["d_u"] - each["d_r"])) is not None]
    if spreads:
        yield from needed(spreads, "model")
