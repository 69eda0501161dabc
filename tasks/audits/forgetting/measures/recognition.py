"""Would an owner pass who recognises the images of D_Q and answers about them with a clean model?

Nothing binds a table of outputs to a model. Each model of the largest known share simulates such an owner:

    answers about D_Q: a calibration model's    answers about the control set: its own

The simulated owner is judged like a table, compared with the other calibration models. Its model knows more about the
control set, which is similar to D_Q, than models trained on D_C do. This gives the owner away if D_Q is large relative
to D_C. So

    passed = pairs of a model and a calibration model that are called forgotten / pairs

decides whether a table can clear. Every model is paired with every calibration model; pairs that share one are
dependent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.config import has_unbound_tables
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.exchangeability import effect, p_values, scores
from tasks.audits.forgetting.held_share import UNLIKE
from tasks.audits.forgetting.model_effects import Decisions, ModelEffects
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target_evidence import LEVEL, RecognitionTrial
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.numerics import seeds
from tasks.numerics.statistics import proportion

RECOGNITION = pa.schema(
    [
        ("share", pa.float64()),  # share of D_Q that the models hold: the largest known one
        ("pairs", pa.int32()),
        ("passed", pa.int32()),  # pairs called forgotten
    ]
)
PASSED = "simulated owners with a clean model's answers, called forgotten"


@dataclass(frozen=True)
class Recognition:
    """Configuration of the decisions, as in the table of decisions."""

    decisions: Decisions


@task(version=1, name="forgetting.recognition", gathers=True)
def recognition(config: Recognition, inputs: Inputs) -> pa.Table:
    """Count the simulated owners who pass (RECOGNITION) from tables of CONFIDENCES. Empty without suitable models."""
    model_effects = ModelEffects(config.decisions, confidence_matrix(inputs))
    partial = [
        group
        for group in model_effects.known_shares
        if group[0] == "partial" and model_effects.matrix.replicates(*group)
    ]
    if not model_effects.is_controlled or len(model_effects.calibration) < 3 or not partial:
        return RECOGNITION.empty_table()
    largest_group = max(partial, key=lambda group: model_effects.known_shares[group])
    models = model_effects.matrix.replicates(*largest_group)
    passed = []
    for model in models:
        for clean in range(len(model_effects.calibration)):
            passed.append(passes(model_effects, model, clean))
    return make_table(
        RECOGNITION, share=model_effects.known_shares[largest_group], pairs=len(passed), passed=sum(passed)
    )


def passes(model_effects: ModelEffects, model: ModelId, clean: int) -> bool:
    """Return whether `model` is called forgotten if it answers about D_Q like the calibration model `clean`."""
    if any(check.is_alike is False for check in model_effects.likeness_checks([model])):
        return False
    calibration = model_effects.calibration_confidences
    (confidence,) = model_effects.matrix.confidences([model])
    image_scores = scores(
        np.where(model_effects.matrix.is_control, confidence, calibration[clean]), np.delete(calibration, clean, axis=0)
    )
    units = model_effects.unit_scores(image_scores)
    curve = model_effects.curve(("calibration", clean))
    if curve is None:
        high = None
    else:
        high = curve.estimate_share(effect(*units), 1).high
    if high is None or high > model_effects.config.negligible:
        return False
    chance = seeds.generator(model_effects.config.seed, "recognition", str(model), clean)
    p = p_values(*units, model_effects.config.permutations, chance)
    return p.surer > LEVEL and p.less_sure >= UNLIKE


def plan(data: DataSets, scoring: Scoring) -> Job | tuple[()]:
    """Plan the trial. Plans nothing unless the run judges tables that nothing binds to a model."""
    is_judged = data.query.is_controlled and scoring.decisions.partial
    if not is_judged or not has_unbound_tables(scoring.audited):
        return ()
    return Job(recognition, Recognition(scoring.decisions), scoring.answers)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for trial in tables.rows(RECOGNITION):
        rate = proportion(trial["passed"], trial["pairs"])
        yield row(PASSED, {"share": trial["share"]}, rate, "pair of models")


def read_trial(tables: Inputs) -> RecognitionTrial | None:
    """Read the trial from the RECOGNITION table among these tables. None if there is none."""
    trials = Tables(tables).rows(RECOGNITION)
    if trials:
        return RecognitionTrial(trials[0]["share"], trials[0]["passed"], trials[0]["pairs"])
    return None


MEASURE = Measure("recognition", RECOGNITION, plan, rows)
