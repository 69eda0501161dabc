"""Presets, their sources, and the questions of `engram ask`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.membership.config import Canaries, Halves, Membership, ModelPairs
from tasks.audits.membership.loss_config import LossAttack, TrainedExample
from tasks.contract.situation import NETWORK, TABLE, Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import Network
from tasks.training.classifier_config import ClassifierTraining
from tasks.training.recipe import Privacy

SMALL = ClassifierTraining(Network("mlp1"), batch=32)
HALVES = Halves(Dataset("digits-on-photos"), 400, models=16, negligible=0.03)
QUICKSTART = Membership(HALVES, SMALL)
SMOKE = Membership(Halves(Dataset("digits"), 100, models=8, negligible=0.03), replace(SMALL, epochs=3))
MNIST = Membership(Halves(examples=10_000, models=32), ClassifierTraining(Network("mlp1")))
CIFAR = Halves(Dataset("cifar10"))
# As in Jordan 2024 (arXiv:2404.00498), but for 16 epochs instead of 9.9, since a half has 25,000 images.
CIFAR_TRAINING = ClassifierTraining(
    Network("airbench"), epochs=16, optimiser="nesterov", learning_rate=11.5, batch=1024, augmentation=True
)

# Half of these records equals the training set size in Shokri et al. 2017.
PURCHASE = Halves(Dataset("purchase100"), 20_000, models=32)
PURCHASE_TRAINING = ClassifierTraining(Network("mlp1"), epochs=30)

# With full-batch steps, the noise is that of a Gaussian mechanism, which reveals most to a ranking.
CANARIES = Canaries(Dataset("digits"), models=1, canaries=700, mislabelled=True)
WHOLE_BATCH = ClassifierTraining(Network("mlp1"), epochs=60, batch=1437, learning_rate=1e-2)
PRIVACIES = (None, Privacy(16.0), Privacy(4.0), Privacy(1.0))
LADDER = tuple(Membership(CANARIES, replace(WHOLE_BATCH, privacy=privacy)) for privacy in PRIVACIES)

LOSS = LossAttack(TrainedExample())
LOSS_TRAINING = replace(SMALL, epochs=60)

PRESETS: Mapping[str, Membership | tuple[Membership, ...]] = {
    "quickstart": QUICKSTART,
    "null": Membership(replace(HALVES, is_null=True), SMALL),
    "smoke": SMOKE,
    "example": Membership(LOSS, LOSS_TRAINING),
    "example_null": Membership(LossAttack(TrainedExample(is_null=True)), LOSS_TRAINING),
    "pairs": Membership(ModelPairs(Dataset("digits-on-photos"), 400), SMALL),
    "mnist": MNIST,
    "cifar10": tuple(Membership(replace(CIFAR, models=models), CIFAR_TRAINING) for models in (16, 64, 256)),
    "purchase100": Membership(PURCHASE, PURCHASE_TRAINING),
    "texas100": Membership(replace(PURCHASE, data=Dataset("texas100")), PURCHASE_TRAINING),
    "one_run": LADDER,
    "ladder": tuple(replace(config, question=replace(CANARIES, models=8)) for config in LADDER),
}
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 16 models on halves of 400 digits on photographs",
    "null": "ours: the models of quickstart, tested on 400 non-members",
    "smoke": "ours: 8 small models on halves of 100 digits",
    "example": "ours: the loss of one model, trained on 400 digits on photographs",
    "example_null": "ours: the loss of the same model for 800 digits that it was not trained on",
    "pairs": "ours: up to 40 pairs of models on halves of the records of quickstart, for --until decided",
    "mnist": "ours: 32 models on halves of 10,000 images of MNIST",
    "cifar10": "ours: 16, 64 and 256 models on halves of CIFAR-10, as Carlini et al. 2022, with airbench",
    "purchase100": "ours: 32 models on halves of 20,000 records of Purchase-100",
    "texas100": "ours: 32 models on halves of 20,000 records of Texas-100",
    "one_run": "ours: 700 mislabelled canaries in digits, one model without privacy and one at each of three epsilons",
    "ladder": "ours: the same with 8 models each",
}
OWN_NETWORK = replace(NETWORK, field="training.network")
WHOSE = (
    Asked(
        "question.records.members",
        "Members: images that the model was trained on, or a table (table:FILE#label=COLUMN#raw)?",
        "folder:scans#64x64",
    ),
    Asked(
        "question.records.non_members",
        "Non-members: images, or a table, of the same source that it was not trained on?",
        "folder:others#64x64",
    ),
    OWN_NETWORK,
)
GIVEN = {"question": "given", "question.models": 64, "question.records": "sets"}
OUTPUTS = replace(TABLE, field="question.source.outputs")
SITUATIONS = (
    Situation(
        "data",
        "unknown",
        (
            Asked(
                "question.data",
                "Which images, or which table (table:FILE#label=COLUMN)?",
                "folder:scans#64x64",
                "digits-on-photos",
                sets={"question.examples": 0},
            ),
            OWN_NETWORK,
        ),
        preset="quickstart",
    ),
    Situation(
        "model",
        "unknown",
        (Asked("question.source.model", "The model's file?", "model.pt"), *WHOSE),
        sets={**GIVEN, "question.source": "file"},
        hint="for a first answer in seconds, without comparison models: engram audit MODEL MEMBERS OTHERS",
    ),
    Situation("outputs", "unknown", (*WHOSE, OUTPUTS), sets=GIVEN, table=OUTPUTS.field),
)
