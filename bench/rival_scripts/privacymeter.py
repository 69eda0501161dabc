"""ML Privacy Meter: its reference metric, with quantiles over the shadow models as thresholds of each record."""

import torch
from case import load_case
from privacy_meter.audit import Audit
from privacy_meter.constants import InferenceGame, MetricEnum
from privacy_meter.dataset import Dataset
from privacy_meter.information_source import InformationSource
from privacy_meter.model import PytorchModel


def judge(folder):
    images, labels, member, models = load_case(folder)
    split = {}
    for name, rows in (("train", member[0]), ("test", ~member[0])):
        split[name] = {"x": images[rows], "y": labels[rows]}
    data = Dataset(split, default_input="x", default_output="y")
    target, *reference_models = [PytorchModel(model, torch.nn.CrossEntropyLoss()) for model in models]
    audit = Audit(
        metrics=MetricEnum.REFERENCE,
        inference_game_type=InferenceGame.PRIVACY_LOSS_MODEL,
        target_info_sources=InformationSource(models=[target], datasets=[data]),
        reference_info_sources=InformationSource(models=reference_models, datasets=[data]),
        logs_directory_names=[str(folder / "logs")],
    )
    audit.prepare()
    return {"auc": float(audit.run()[0][0].roc_auc)}
