"""The effect of each canary: the scores of its model and of its control model, and their difference.

    M   = mean KL(f(x_c) || f(x_u)) - mean KL(f(x_c) || f(x_r))      over the probe images
    M_w = mean log P(y | x_u) - log P(y | x_r)                       over the probe images, and the training images of y
    effect = the score of the canary model minus that of its control model of the same seed

The t-tests are the published ones, which compare the feature with random patches over probe images, for one model.
Their sample is the images, so a small p-value is not evidence about the canary: models trained without the feature also
have small p-values (the columns `twin_...`). The columns `..._effect` contain the effect of the canary: if it is above
0, the model responds to the feature because it was trained on it. The verdict of the audit is based on the effect on
M_w over the probe images.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks": M is eq. 1 with
section 2.3.2, M_w section 2.2, Tables 1 to 3. The control models, the effects and the adjusted p-values are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.measures.divergences import DIVERGENCES, evaluation_jobs
from tasks.audits.unique_feature.measures.learning_curve import HISTORY, history_jobs
from tasks.audits.unique_feature.pairs.units import (
    Units,
    average_rows,
    call_rate,
    column,
    effect_row,
    units,
)
from tasks.audits.unique_feature.presets import LEVEL, PublishedCell, PublishedNumbers
from tasks.audits.unique_feature.scores import (
    Array,
    average,
    black_box_score,
    probe_count_rows,
    spread,
    white_box_score,
)
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, alone, row, row_name
from tasks.numerics.ranks import false_discovery_control
from tasks.numerics.statistics import (
    mcnemar_greater,
    mean,
    paired_greater,
    proportion,
    proportion_greater,
    welch_greater,
    within_shares,
)

EFFECT = row_name("M_w effect", images="probe")  # the summary row that decides the answer
LARGEST = "largest M_w effect"  # over canaries; exact ranks have no scale, so this shows if an effect is relevant

LEFT_OUT = "probe images left out, as copies of training images"

# Columns of the canary model are named after the score; those of its control model begin with "twin_".
PREFIXES = {"canary": "", "twin": "twin_"}
SCORES = ("m", "m_w_probe", "m_w_train")
TESTS = {"welch": welch_greater, "paired": paired_greater}


def schema() -> pa.Schema:
    """Return the columns: identity, scores of each model with p-values, and effects (canary minus control model)."""
    fields = [("canary", pa.int64()), ("label", pa.int32()), ("seed", pa.int64()), ("evaluation", pa.int32())]
    fields += [(name, pa.float64()) for score in SCORES for name in (score, f"twin_{score}", f"{score}_effect")]
    for prefix in PREFIXES.values():
        for score in SCORES:
            for test in TESTS:
                fields += [
                    (f"{prefix}{score}_{test}_t", pa.float64()),
                    (f"{prefix}{score}_{test}_p", pa.float64()),
                    (f"{prefix}{score}_{test}_adjusted_p", pa.float64()),
                ]
        fields += [(f"{prefix}average_{d}", pa.float64()) for d in ("d_u", "d_r")]
        fields += [(f"{prefix}m_sd", pa.float64())]  # standard deviation of d_u - d_r over the probe images
        fields += [(f"{prefix}p_{x}_{images}", pa.float64()) for images in ("probe", "train") for x in ("u", "r")]
        fields += [(f"{prefix}images_{images}", pa.int64()) for images in ("probe", "train")]
        fields += [(f"{prefix}validation_accuracy", pa.float64())]
        fields += [(f"{prefix}epochs", pa.int32()), (f"{prefix}best_epoch", pa.int32())]
    return pa.schema(fields)


CANARY_SCORES = schema()


@task(version=3, name="unique_feature.canary_scores", gathers=True)
def canary_scores(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute a row for every pair and evaluation, sorted by decreasing M.

    The inputs are divergences and histories, in any order and number. A pair has a row if its divergences are
    available. p-values are adjusted over all rows, separately for each score, test and kind of model.
    """
    histories = {_pair_key(table): table for table in inputs if table.schema == HISTORY}
    divergences = [table for table in inputs if table.schema == DIVERGENCES]
    rows = []
    for table in divergences:
        rows.append(_pair_scores(table) | _training_columns(histories.get(_pair_key(table))))
    rows.sort(key=lambda row: (-row["m"], row["canary"], row["seed"], row["evaluation"]))
    adjust_p_values(rows)
    return pa.Table.from_pylist(rows, CANARY_SCORES)


def _pair_key(table: pa.Table) -> tuple[int, int]:
    """Return the canary and the training seed that a table of one pair belongs to."""
    return table["canary"][0].as_py(), table["seed"][0].as_py()


def _pair_scores(divergences: pa.Table) -> Row:
    """Return the scores of one pair of models."""
    row: Row = {name: divergences[name][0].as_py() for name in ("canary", "label", "seed", "evaluation")}
    for model, prefix in PREFIXES.items():
        row |= {prefix + name: value for name, value in _model_scores(divergences, model).items()}
    for score in SCORES:
        if row[score] is None:
            row[f"{score}_effect"] = None
        else:
            row[f"{score}_effect"] = row[score] - row[f"twin_{score}"]
    return row


def _model_scores(divergences: pa.Table, model: str) -> Row:
    """Return one model's scores, with the p-values over images of the tests in the paper."""
    probe = _select_columns(divergences, model, "probe")
    train = _select_columns(divergences, model, "train")
    row: Row = {
        "m": black_box_score(probe["d_u"], probe["d_r"]),
        "m_w_probe": white_box_score(probe["log_p_u"], probe["log_p_r"]),
        "m_w_train": white_box_score(train["log_p_u"], train["log_p_r"]),
        "average_d_u": average(probe["d_u"]),
        "average_d_r": average(probe["d_r"]),
        "m_sd": spread(probe["d_u"] - probe["d_r"]),
    }
    for images, columns in (("probe", probe), ("train", train)):
        row[f"images_{images}"] = len(columns["d_u"])
        for x in ("u", "r"):
            row[f"p_{x}_{images}"] = average(np.exp(columns[f"log_p_{x}"]))
    compared = {"m": (probe, "d"), "m_w_probe": (probe, "log_p"), "m_w_train": (train, "log_p")}
    for score, (columns, kind) in compared.items():
        for name, test in TESTS.items():
            tested = test(columns[f"{kind}_u"], columns[f"{kind}_r"])
            row |= {f"{score}_{name}_t": finite(tested.statistic), f"{score}_{name}_p": tested.p_value}
    return row


def finite(value: float | None) -> float | None:
    """Return the value, or None if it is infinite, as in a test of images that do not vary."""
    return value if value is not None and math.isfinite(value) else None


def _training_columns(history: pa.Table | None) -> Row:
    """Return the epochs and accuracies of both models. Empty if there is no history."""
    row: Row = {}
    for epoch in [] if history is None else history.to_pylist():
        prefix = PREFIXES[epoch["model"]]
        row[f"{prefix}epochs"] = max(epoch["epoch"], row.get(f"{prefix}epochs", 0))
        if epoch["kept"]:
            row[f"{prefix}best_epoch"] = epoch["epoch"]
            row[f"{prefix}validation_accuracy"] = epoch["validation_accuracy"]
    return row


def adjust_p_values(scores: Sequence[Row]) -> None:
    """Add p-values adjusted over the rows to these rows (Benjamini & Hochberg 1995)."""
    for name in [f"{prefix}{kind}_{test}" for prefix in PREFIXES.values() for kind in SCORES for test in TESTS]:
        values = [math.nan if score[f"{name}_p"] is None else score[f"{name}_p"] for score in scores]
        for score, adjusted in zip(scores, false_discovery_control(values).tolist(), strict=True):
            if math.isnan(adjusted):
                score[f"{name}_adjusted_p"] = None
            else:
                score[f"{name}_adjusted_p"] = adjusted


def _select_columns(divergences: pa.Table, model: str, images: str) -> dict[str, Array]:
    """Return the numeric columns, as float64, of one model on one set of images."""
    import pyarrow.compute as pc  # takes a tenth of the time of `engram show`

    selected = divergences.filter((pc.field("model") == model) & (pc.field("images") == images))
    columns = {}
    for name in ("d_u", "d_r", "log_p_u", "log_p_r"):
        columns[name] = selected[name].to_numpy().astype(np.float64)
    return columns


def scores_job(design: Design, trainings: Trainings) -> Job:
    """Return the job that scores these pairs."""
    return Job(canary_scores, NoSettings(), (*evaluation_jobs(design, trainings), *history_jobs(trainings)))


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.asks_for("scores"):
        return (scores_job(design, trainings),)
    return ()


def rows(tables: Tables, about: PublishedCell) -> Iterator[Row]:
    """Yield the rows for the answer, the numbers printed in the paper, and the variation over seeds and draws."""
    for table in tables.select(CANARY_SCORES):
        scores = table.to_pylist()
        independent = units(scores)
        published = about.numbers
        yield from _black_box_rows(independent, published)
        yield from _published_test_rates(independent)
        yield from white_box_rows(independent)
        yield from accuracy_rows(independent, published, about.chance)
        yield from probe_count_rows(column(independent.pairs, "twin_m_sd"), "training")
        yield from _top_canary_rows(independent, published)
        yield from seed_range_rows(scores)
        yield from evaluation_spread_rows(scores)
        if about.left_out:
            yield row(LEFT_OUT, {}, alone(float(about.left_out), about.left_out), "image")


def _black_box_rows(units: Units, published: PublishedNumbers) -> Iterator[Row]:
    """Yield M over all canaries, the effect of the canary on it, and M as published, over the canaries with M > 0.

    The published mean is also positive for models trained without the feature. Its null is the mean over control
    models.
    """
    canary = column(units.rows, "m")
    twin = column(units.rows, "twin_m")
    yield row("M", {"model": "canary"}, mean(canary), units.model, null=mean(twin).value)
    yield row("M", {"model": "twin"}, mean(twin), units.model)
    yield effect_row("M effect", {}, units.rows, "m", units.pair)
    above = {"canary": [m for m in canary if m > 0], "twin": [m for m in twin if m > 0]}
    means = {model: mean(values) for model, values in above.items()}
    yield row(
        "M where positive",
        {"model": "canary"},
        means["canary"],
        units.model,
        means["twin"].value,
        published=published.m_where_positive,
    )
    yield row("M where positive", {"model": "twin"}, means["twin"], units.model)
    shares = {model: proportion(len(above[model]), len(units.rows)) for model in PREFIXES}
    p_value = mcnemar_greater([m > 0 for m in canary], [m > 0 for m in twin])
    yield row("rate of positive M", {"model": "canary"}, shares["canary"], units.model, shares["twin"].value, p_value)
    yield row("rate of positive M", {"model": "twin"}, shares["twin"], units.model)


def _published_test_rates(units: Units) -> Iterator[Row]:
    """Yield the rate at which the published test calls models memorised, for canary models and for control models.

    If images were the right sample, the test would call a share LEVEL of the control models memorised. The p-value of
    the control models' rate tests this. Training runs that share a canary or a seed are not an independent sample, so
    their rates have neither interval nor p-value.
    """
    independent = len(units.pairs) == len(units.rows)
    for test in TESTS:
        rate = {}
        for model, prefix in PREFIXES.items():
            rate[model] = significant(units.pairs, f"{prefix}m_{test}_p")
        rates = {model: call_rate(values, independent) for model, values in rate.items()}
        p_value = None
        if independent:
            p_value = mcnemar_greater(rate["canary"], rate["twin"])
        setting = {"model": "canary", "test": test}
        yield row("rate called memorised", setting, rates["canary"], "training", rates["twin"].value, p_value)
        p_value = None
        if independent:
            p_value = proportion_greater(sum(rate["twin"]), len(rate["twin"]), LEVEL)
        yield row("rate called memorised", setting | {"model": "twin"}, rates["twin"], "training", LEVEL, p_value)


def white_box_rows(units: Units) -> Iterator[Row]:
    """Yield M_w, the effect of the canary on it, and the two probabilities, on the probe images and on the training
    images.
    """
    for images in ("probe", "train"):
        setting = {"images": images}
        yield _mean_row("M_w", setting, units, f"m_w_{images}")
        yield effect_row("M_w effect", setting, units.rows, f"m_w_{images}", units.pair)
        if images == "probe":
            effects = column(units.rows, "m_w_probe_effect")
            largest = Estimate(max(effects, default=None), None, None, len(effects))
            yield row(LARGEST, setting, largest, units.pair, 0.0)
        yield _mean_row("P_u", setting, units, f"p_u_{images}")
        yield _mean_row("P_r", setting, units, f"p_r_{images}")


def accuracy_rows(units: Units, published: PublishedNumbers, chance: float | None) -> Iterator[Row]:
    for model, prefix in PREFIXES.items():
        values = column(units.rows, f"{prefix}validation_accuracy")
        yield row("validation accuracy", {"model": model}, mean(values), units.model, published=published.accuracy)
    values = column(units.rows, f"{PREFIXES['twin']}validation_accuracy")
    yield accuracy_row(within_shares(mean(values)), "validation images", chance, units.model)


def _top_canary_rows(units: Units, published: PublishedNumbers) -> Iterator[Row]:
    """Yield the canaries that the published tables list. The null is the control model of the same rank.

    Table 1: the largest M_w, with its probabilities. The paper is unclear about which images the mean is over (training
    images in section 2.2, the probe set in section B.1), so both are compared with its numbers. Table 2: the largest M.
    """
    if published.m_w:
        for images in ("probe", "train"):
            names = {"M_w": f"m_w_{images}", "P_u": f"p_u_{images}", "P_r": f"p_r_{images}"}
            yield from _ranked_score_rows(units.rows, names, {"images": images}, published.m_w)
    if published.m:
        yield from _ranked_score_rows(units.rows, {"M": "m"}, {}, [(m,) for m in published.m])


def _ranked_score_rows(
    rows: Sequence[Row], names: dict[str, str], setting: Row, published: Sequence[Sequence[float]]
) -> Iterator[Row]:
    """Yield the values of `names`, ranked by the first of them, each with the published number."""
    first = next(iter(names.values()))
    canaries, twins = (_top_pairs(rows, f"{prefix}{first}", len(published)) for prefix in PREFIXES.values())
    for rank, (canary, twin, numbers) in enumerate(zip(canaries, twins, published, strict=False), start=1):
        for (metric, name), number in zip(names.items(), numbers, strict=True):
            setting_ = setting | {"rank": rank}
            yield row(metric, setting_, alone(canary[name]), "training", twin[f"twin_{name}"], published=number)


def _top_pairs(rows: Sequence[Row], name: str, count: int) -> list[Row]:
    return sorted((row for row in rows if row[name] is not None), key=lambda row: -row[name])[:count]


def _mean_row(metric: str, setting: Row, units: Units, name: str) -> Row:
    """Return the mean over the canary models. The null is the mean over their control models."""
    twins = mean(column(units.rows, f"twin_{name}"))
    return row(metric, setting, mean(column(units.rows, name)), units.model, null=twins.value)


def significant(pairs: Sequence[Row], name: str) -> list[bool]:
    """Return whether each test is significant. A test that could not be computed is not."""
    return [pair[name] is not None and pair[name] < LEVEL for pair in pairs]


MEASURE = Measure("canary_scores", CANARY_SCORES, plan, rows)


REPLICATED = {"M": "m", "M_w on the probe images": "m_w_probe"}


def seed_range_rows(scores: Sequence[Row]) -> Iterator[Row]:
    """Yield the range of a canary's score over its training seeds, and the share of canaries whose range includes 0."""
    by_canary = group_rows(average_rows(scores, "canary", "seed"), "canary").values()
    if all(len(group) == 1 for group in by_canary):
        return
    for metric, name in REPLICATED.items():
        own_scores = [column(group, PREFIXES["canary"] + name) for group in by_canary]
        twin_scores = [column(group, PREFIXES["twin"] + name) for group in by_canary]
        null = _mean_range(twin_scores).value
        yield row(f"range of {metric} over seeds", {}, _mean_range(own_scores), "canary", null)
        null = _share_crossing_zero(twin_scores).value
        yield row(f"rate of {metric} on both sides of 0", {}, _share_crossing_zero(own_scores), "canary", null)


def _mean_range(score_lists: Sequence[Sequence[float]]) -> Estimate:
    return mean([float(np.ptp(values)) for values in score_lists])


def _share_crossing_zero(score_lists: Sequence[Sequence[float]]) -> Estimate:
    return proportion(sum(min(values) < 0 < max(values) for values in score_lists), len(score_lists))


def evaluation_spread_rows(scores: Sequence[Row]) -> Iterator[Row]:
    """Yield the standard deviation of a model's score over draws of the random patches."""
    by_pair = []
    for group in group_rows(scores, "canary", "seed").values():
        if len(group) > 1:
            by_pair.append(group)
    for metric, name in REPLICATED.items():
        if by_pair:
            canary_spread = _mean_spread(by_pair, PREFIXES["canary"] + name)
            null = _mean_spread(by_pair, PREFIXES["twin"] + name).value
            yield row(f"sd of {metric} over evaluations", {}, canary_spread, "training", null)


def _mean_spread(by_pair: Sequence[Sequence[Row]], name: str) -> Estimate:
    return mean([float(np.std(column(group, name), ddof=1)) for group in by_pair])
