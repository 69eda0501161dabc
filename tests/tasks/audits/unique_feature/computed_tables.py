"""Tables of each task, whose fingerprints a test compares with the task's version."""

import functools
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.evaluation import Burning, Evaluation
from tasks.audits.unique_feature.measures.contrast import Contrast, contrast
from tasks.audits.unique_feature.measures.divergences import ask, score
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS, ExactRanks, exact_ranks
from tasks.audits.unique_feature.measures.family import PairFamily, ask_family, pair_family
from tasks.audits.unique_feature.measures.latents import Latents, latents
from tasks.audits.unique_feature.measures.learning_curve import History, LearningCurve, history, learning_curve
from tasks.audits.unique_feature.pairs.bets import StoppingLevel, evidence
from tasks.audits.unique_feature.pairs.canary_scores import canary_scores
from tasks.audits.unique_feature.pairs.canary_selection import (
    CanaryChoice,
    RankedImage,
    RankedTraining,
    Tracing,
    choose_canaries,
    influence,
    train_with_canary,
)
from tasks.audits.unique_feature.pairs.canary_verdicts import canary_verdicts, exact_verdicts
from tasks.audits.unique_feature.pairs.detection import curves, detection
from tasks.audits.unique_feature.pairs.influence import InfluenceChange
from tasks.audits.unique_feature.pairs.influence import influence_change as retrace
from tasks.audits.unique_feature.pairs.panels import Panels, exact_panels, panels
from tasks.audits.unique_feature.pairs.regularisation import regularisation
from tasks.audits.unique_feature.population import Relatives
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.single_models.look_alikes import LookAlikes, ask_look_alikes
from tasks.audits.unique_feature.single_models.models import SingleModelConfig
from tasks.audits.unique_feature.summary import summary, summary_of_models
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Glyph
from tests.support.fingerprint import TRAINED, Computed
from tests.tasks.audits.unique_feature import made_up


def score_table() -> pa.Table:
    data = pin(Dataset("digits"))
    probe = pin(Dataset("photos"))
    canary = int(np.flatnonzero(load(data).train_labels == made_up.LABEL)[2])
    config = Evaluation(data, probe, "test", Glyph(), canary, examples=100, seed=1)
    return score(config, [made_up.letter_model(3.0), made_up.letter_model(1.0)])


def history_table() -> pa.Table:
    epochs = []
    for i in (1, 2):
        epochs.append({"epoch": i, "train_loss": 0.5, "validation_loss": 0.25 * i, "validation_accuracy": 0.5})
    model = made_up.letter_model(1.0)
    field = model.schema.field("history")
    filled = model.set_column(model.schema.get_field_index("history"), field, pa.array([epochs], field.type))
    return history(History(3), [filled, filled])


def canary_table() -> pa.Table:
    return canary_scores(NoSettings(), [made_up.pair(i, 0.01 * i, 0.005) for i in range(1, 5)])


def summary_table() -> pa.Table:
    return summary(PublishedCell("table 1, mnist, mlp1, no regulariser"), [canary_table()])


def model_summary_table() -> pa.Table:
    return summary_of_models(PublishedCell(), families())


def relatives() -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", 50, Glyph(), AskedFamily(count=9), seed=3)


def family_table() -> pa.Table:
    config = PairFamily(pin(Dataset("digits")), 3, relatives(), Glyph(kind="random", seed=2))
    return pair_family(config, [made_up.letter_model(3.0), made_up.letter_model(1.0)])


@functools.cache
def exact_rank_table() -> pa.Table:
    config = ExactRanks(pin(Dataset("digits")), 3, 100, relatives(), False, 1)
    models = [made_up.letter_model(3.0), made_up.letter_model(1.0), made_up.letter_model(0.0)]
    return exact_ranks(config, models)


def exact_panel_table() -> pa.Table:
    ranks = exact_rank_table().to_pylist()
    rows = []
    for canary in range(6):
        for row in ranks:
            rows.append(row | {"canary": canary, "seed": canary})
    return exact_panels(Panels(5), [pa.Table.from_pylist(rows, EXACT_RANKS)])


def single_model_table() -> pa.Table:
    return ask(SingleModelConfig(relatives(), "family", (28, 28, 1), label=made_up.LABEL), [made_up.letter_model(3.0)])


def single_family_table() -> pa.Table:
    return ask_family(SingleModelConfig(relatives(), "noise", (28, 28, 1)), [made_up.letter_model(3.0)])


def look_alike_table() -> pa.Table:
    relatives_with_look_alikes = replace(relatives(), family=AskedFamily(count=9, look_alikes=4))
    config = LookAlikes(SingleModelConfig(relatives_with_look_alikes, "noise", (28, 28, 1)))
    outputs = ask_look_alikes(config, [made_up.letter_model(3.0)])
    return pa.table({"log_p": outputs["log_p"].combine_chunks().flatten()})


def families() -> list[pa.Table]:
    draws = np.random.default_rng(8)
    log_p = {model: draws.normal(-2, 1, (6, 22, 3)) for model in ("canary", "twin")}
    result = []
    for c in range(6):
        result.append(made_up.family(c, {model: values[c] for model, values in log_p.items()}, 1, c, True))
    return result


def detection_table() -> pa.Table:
    return detection(NoSettings(), [*families(), canary_table()])


def bet_table() -> pa.Table:
    return evidence(StoppingLevel(0.05), families())


def verdict_table() -> pa.Table:
    return canary_verdicts(NoSettings(), families())


def exact_verdict_table() -> pa.Table:
    rows = []
    for canary in range(3):
        for row in exact_rank_table().to_pylist():
            rows.append(row | {"canary": canary, "seed": canary})
    return exact_verdicts(NoSettings(), [pa.Table.from_pylist(rows, EXACT_RANKS)])


def curve_table() -> pa.Table:
    return curves(NoSettings(), [detection_table()])


def panel_table() -> pa.Table:
    return panels(Panels(5), families())


def regularisation_table() -> pa.Table:
    plain = canary_scores(NoSettings(), [made_up.pair(i, 0.02 * i, 0.01) for i in range(3)])
    return regularisation(NoSettings(), [canary_table(), plain])


def contrast_table() -> pa.Table:
    return contrast(Contrast(pin(Dataset("photos")), "test", (28, 28, 1), Burning(Glyph(), "noise", 4)), ())


def retraced_table() -> pa.Table:
    tables = [made_up.influence([3.0, 9.0, 1.0, 7.0, 5.0]), made_up.influence([3.0, 9.0, 6.0, 7.0, 5.0])]
    return retrace(InfluenceChange(RankedImage("lowest", 1)), [made_up.chosen_rows(2, end="lowest"), *tables])


def chosen_table() -> pa.Table:
    return choose_canaries(CanaryChoice(4), [made_up.influence([3.0, 9.0, 1.0, 7.0, 5.0])])


def latent_table() -> pa.Table:
    return latents(
        Latents(made_up.evaluation(7)), [made_up.threshold_model(brightness) for brightness in (0.5001, 0.3001)]
    )


def influence_table() -> pa.Table:
    return influence(
        Tracing(made_up.TRAINING, RankedImage("lowest", 1), made_up.LETTER), [made_up.chosen_rows(7, end="lowest")]
    )


def training_table() -> pa.Table:
    config = RankedTraining(made_up.TRAINING, RankedImage("highest", 1), made_up.LETTER)
    return pa.Table.from_pylist(train_with_canary(config, [made_up.chosen_rows(7)]).to_pylist()[0]["history"])


def course_table() -> pa.Table:
    return learning_curve(LearningCurve(made_up.TRAINING, made_up.evaluation(7), "twin"), ())


TABLES = [
    Computed(score, score_table),
    Computed(history, history_table),
    Computed(canary_scores, canary_table),
    Computed(summary, summary_table),
    Computed(summary_of_models, model_summary_table),
    Computed(pair_family, family_table),
    Computed(exact_ranks, exact_rank_table),
    Computed(exact_panels, exact_panel_table),
    Computed(ask, single_model_table),
    Computed(ask_family, single_family_table),
    Computed(ask_look_alikes, look_alike_table),
    Computed(detection, detection_table),
    Computed(canary_verdicts, verdict_table),
    Computed(evidence, bet_table),
    Computed(exact_verdicts, exact_verdict_table),
    Computed(curves, curve_table),
    Computed(panels, panel_table),
    Computed(regularisation, regularisation_table),
    Computed(contrast, contrast_table),
    Computed(retrace, retraced_table),
    Computed(choose_canaries, chosen_table),
    Computed(latents, latent_table),
    Computed(influence, influence_table, tolerance=TRAINED),
    Computed(train_with_canary, training_table, tolerance=TRAINED),
    Computed(learning_curve, course_table, tolerance=TRAINED),
]
