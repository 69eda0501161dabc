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


def scored() -> pa.Table:
    data, probe = pin(Dataset("digits")), pin(Dataset("photos"))
    canary = int(np.flatnonzero(load(data).train_labels == made_up.LABEL)[2])
    config = Evaluation(data, probe, "test", Glyph(), canary, examples=100, seed=1)
    return score(config, [made_up.reads_the_letter(3.0), made_up.reads_the_letter(1.0)])


def of_each_epoch() -> pa.Table:
    epochs = [{"epoch": i, "train_loss": 0.5, "validation_loss": 0.25 * i, "validation_accuracy": 0.5} for i in (1, 2)]
    model = made_up.reads_the_letter(1.0)
    field = model.schema.field("history")
    filled = model.set_column(model.schema.get_field_index("history"), field, pa.array([epochs], field.type))
    return history(History(3), [filled, filled])


def of_each_canary() -> pa.Table:
    return canary_scores(NoSettings(), [made_up.pair(i, 0.01 * i, 0.005) for i in range(1, 5)])


def of_all() -> pa.Table:
    return summary(PublishedCell("table 1, mnist, mlp1, no regulariser"), [of_each_canary()])


def of_those_asked_alone() -> pa.Table:
    return summary_of_models(PublishedCell(), families())


def relatives() -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", 50, Glyph(), AskedFamily(count=9), seed=3)


def of_the_family() -> pa.Table:
    config = PairFamily(pin(Dataset("digits")), 3, relatives(), Glyph(kind="random", seed=2))
    return pair_family(config, [made_up.reads_the_letter(3.0), made_up.reads_the_letter(1.0)])


@functools.cache
def of_exact_ranks() -> pa.Table:
    config = ExactRanks(pin(Dataset("digits")), 3, 100, relatives(), False, 1)
    models = [made_up.reads_the_letter(3.0), made_up.reads_the_letter(1.0), made_up.reads_the_letter(0.0)]
    return exact_ranks(config, models)


def of_exact_panels() -> pa.Table:
    ranks = of_exact_ranks().to_pylist()
    rows = [row | {"canary": canary, "seed": canary} for canary in range(6) for row in ranks]
    return exact_panels(Panels(5), [pa.Table.from_pylist(rows, EXACT_RANKS)])


def of_one_alone() -> pa.Table:
    return ask(
        SingleModelConfig(relatives(), "family", (28, 28, 1), label=made_up.LABEL), [made_up.reads_the_letter(3.0)]
    )


def of_ones_family() -> pa.Table:
    return ask_family(SingleModelConfig(relatives(), "noise", (28, 28, 1)), [made_up.reads_the_letter(3.0)])


def of_its_look_alikes() -> pa.Table:
    asked = replace(relatives(), family=AskedFamily(count=9, look_alikes=4))
    config = LookAlikes(SingleModelConfig(asked, "noise", (28, 28, 1)))
    said = ask_look_alikes(config, [made_up.reads_the_letter(3.0)])
    return pa.table({"log_p": said["log_p"].combine_chunks().flatten()})


def families() -> list[pa.Table]:
    draws = np.random.default_rng(8)
    log_p = {model: draws.normal(-2, 1, (6, 22, 3)) for model in ("canary", "twin")}
    return [made_up.family(c, {model: values[c] for model, values in log_p.items()}, 1, c, True) for c in range(6)]


def of_detection() -> pa.Table:
    return detection(NoSettings(), [*families(), of_each_canary()])


def of_bets() -> pa.Table:
    return evidence(StoppingLevel(0.05), families())


def of_canaries() -> pa.Table:
    return canary_verdicts(NoSettings(), families())


def of_exact_verdicts() -> pa.Table:
    rows = [row | {"canary": canary, "seed": canary} for canary in range(3) for row in of_exact_ranks().to_pylist()]
    return exact_verdicts(NoSettings(), [pa.Table.from_pylist(rows, EXACT_RANKS)])


def of_curves() -> pa.Table:
    return curves(NoSettings(), [of_detection()])


def of_panels() -> pa.Table:
    return panels(Panels(5), families())


def of_a_regulariser() -> pa.Table:
    plain = canary_scores(NoSettings(), [made_up.pair(i, 0.02 * i, 0.01) for i in range(3)])
    return regularisation(NoSettings(), [of_each_canary(), plain])


def of_contrast() -> pa.Table:
    return contrast(Contrast(pin(Dataset("photos")), "test", (28, 28, 1), Burning(Glyph(), "noise", 4)), ())


def retraced() -> pa.Table:
    tables = [made_up.influence([3.0, 9.0, 1.0, 7.0, 5.0]), made_up.influence([3.0, 9.0, 6.0, 7.0, 5.0])]
    return retrace(InfluenceChange(RankedImage("lowest", 1)), [made_up.chosen(2, end="lowest"), *tables])


def of_the_chosen() -> pa.Table:
    return choose_canaries(CanaryChoice(4), [made_up.influence([3.0, 9.0, 1.0, 7.0, 5.0])])


def of_the_units() -> pa.Table:
    return latents(Latents(made_up.evaluation(7)), [made_up.wakes_above(brightness) for brightness in (0.5001, 0.3001)])


def traced() -> pa.Table:
    return influence(
        Tracing(made_up.TRAINING, RankedImage("lowest", 1), made_up.LETTER), [made_up.chosen(7, end="lowest")]
    )


def trained() -> pa.Table:
    config = RankedTraining(made_up.TRAINING, RankedImage("highest", 1), made_up.LETTER)
    return pa.Table.from_pylist(train_with_canary(config, [made_up.chosen(7)]).to_pylist()[0]["history"])


def followed() -> pa.Table:
    return learning_curve(LearningCurve(made_up.TRAINING, made_up.evaluation(7), "twin"), ())


TABLES = [
    Computed(score, scored),
    Computed(history, of_each_epoch),
    Computed(canary_scores, of_each_canary),
    Computed(summary, of_all),
    Computed(summary_of_models, of_those_asked_alone),
    Computed(pair_family, of_the_family),
    Computed(exact_ranks, of_exact_ranks),
    Computed(exact_panels, of_exact_panels),
    Computed(ask, of_one_alone),
    Computed(ask_family, of_ones_family),
    Computed(ask_look_alikes, of_its_look_alikes),
    Computed(detection, of_detection),
    Computed(canary_verdicts, of_canaries),
    Computed(evidence, of_bets),
    Computed(exact_verdicts, of_exact_verdicts),
    Computed(curves, of_curves),
    Computed(panels, of_panels),
    Computed(regularisation, of_a_regulariser),
    Computed(contrast, of_contrast),
    Computed(retrace, retraced),
    Computed(choose_canaries, of_the_chosen),
    Computed(latents, of_the_units),
    Computed(influence, traced, tolerance=TRAINED),
    Computed(train_with_canary, trained, tolerance=TRAINED),
    Computed(learning_curve, followed, tolerance=TRAINED),
]
