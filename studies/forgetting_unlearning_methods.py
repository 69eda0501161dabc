"""Which unlearning methods does `forgetting` clear, and what do published measures report?

    python -m studies forgetting_unlearning_methods [--tiny] [--seed 1000] [--models FILE] [--out FILE]

Data and models are the same as in `forgetting_evasion`. Each method removes D_Q, with default settings, from ten models
trained on all of D_Q. Retraining uses models that never saw D_Q. Each model is judged separately. U-LiRA and forgetting
quality compare the ten models with the calibration models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from studies.forgetting_evasion import (
    CLEAN,
    Counted,
    Size,
    asked,
    counted,
    decisions_of,
    planned,
    publish_tables,
    trained,
)
from studies.interface import study_parser
from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.model_effects import ModelEffects
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import ModelId
from tasks.numerics import seeds
from tasks.training.mixed import Mixture, unlearn
from tasks.training.unlearning_config import UNLEARNING, Method, Retraining, Unlearning

MODELS = 10  # maximum number of models per method
OWNER = "model by model"
BEFORE = "none, before unlearning"


def counts(size: Size, path: Path | None = None) -> Iterator[Counted]:
    """Yield the counts for the models before unlearning and after each method."""
    config = size.config
    plan = planned(size)
    models = trained(plan, path)
    tables = [asked(config, model, [table]) for model, table in models.items() if model.kind != "target"]
    names = (BEFORE, *UNLEARNING)
    few = min(MODELS, size.owners)
    for index in range(few):
        holds = ModelId("target", 0, index)
        clean = ModelId("target", CLEAN, index)
        tables.append(asked(config, ModelId("target", 0, index), [models[holds]]))
        for number, method in enumerate(UNLEARNING.values(), start=1):
            if method is Retraining:
                table = models[clean]
            else:
                table = unlearn(unlearning(size, plan[holds], method()), [models[holds]])
            tables.append(asked(config, ModelId("target", number, index), [table]))
    # Targets do not state their training data. The audit learns the effect of shares from its own models.
    targets = tuple(NamedTarget(name, "model") for name in names)
    compared = ModelEffects(decisions_of(config, targets), confidence_matrix(tables))
    for number, method_name in enumerate(names):
        yield counted(method_name, OWNER, compared, number)


def unlearning(size: Size, mixture: Mixture, method: Method) -> Unlearning:
    """Configure the unlearning of D_Q from a model trained on this mixture."""
    part = size.config.query_part
    return Unlearning(
        kept=tuple(share for share in mixture.shares if share.part != part),
        forgotten=tuple(share for share in mixture.shares if share.part == part),
        method=method,
        validation=mixture.validation,
        classes=mixture.classes,
        seed=seeds.derive(mixture.seed, method.tag),
        batch=mixture.batch,
    )


def main(arguments: Sequence[str]) -> None:
    publish_tables("Unlearning methods", study_parser(__name__, __doc__), arguments, counts, MODELS)
