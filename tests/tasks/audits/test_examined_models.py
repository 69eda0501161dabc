"""The first sentence of each audit's certificate: the models that it examined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.audits.deja_vu import AUDIT as DEJA_VU
from tasks.audits.deja_vu.encoder_config import EncoderTable, TrainedReferences
from tasks.audits.density import AUDIT as DENSITY
from tasks.audits.density.config import Density, NearDuplicates
from tasks.audits.forgetting import AUDIT as FORGETTING
from tasks.audits.forgetting.presets import QUICKSTART as TRAINED_TARGETS
from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership.config import Canaries, Halves, Membership, ModelPairs
from tasks.audits.membership.given_config import AskedFile, GivenModel, ReturnedTable
from tasks.audits.relational import AUDIT as RELATIONAL
from tasks.audits.relational.presets import QUICKSTART as ANSWERS
from tasks.audits.text import AUDIT as TEXT
from tasks.audits.text.config import Text
from tasks.audits.text.plain_words import shorten_model
from tasks.audits.text.question import (
    AskedModel,
    Documents,
    Identifiers,
    Insertions,
    Planted,
    RankingModel,
    Secrets,
    TextComparison,
)
from tasks.audits.text.question import ReturnedTable as ReturnedProbabilities
from tasks.audits.text.tuning import TextReading
from tasks.audits.unique_feature import AUDIT as UNIQUE_FEATURE
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import Given, ModelFiles, ReturnedOutputs
from tasks.audits.unique_feature.questions import Panel
from tasks.contract.audit import Audit
from tasks.contract.schemas import SUMMARY
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.deja_vu import simulated_encoders
from tests.tasks.audits.unique_feature.made_up import configure

TABLE = File("in/sent.csv")
MODEL = ModelFile("in/model.pt")
PUBLIC = LanguageModel("hub:org/base")
TUNED = TextReading(LanguageModel("folder:data/tuned"))
TEXTS = Dataset("facts")


@pytest.mark.parametrize(
    ("audit", "configs"),
    [
        (
            DEJA_VU,
            {
                "file": simulated_encoders.CONFIG,
                "table": replace(
                    simulated_encoders.CONFIG,
                    encoders=replace(simulated_encoders.GIVEN, encoder=EncoderTable(), comparison=TrainedReferences()),
                ),
            },
        ),
        (DENSITY, {"trained": Density(), "duplicates": Density(NearDuplicates())}),
        (
            FORGETTING,
            {
                "trained": TRAINED_TARGETS,
                "file": with_settings(TRAINED_TARGETS, {"given.models": (MODEL,)}),
                "table": with_settings(TRAINED_TARGETS, {"given.outputs": (TABLE,)}),
            },
        ),
        (
            MEMBERSHIP,
            {
                "halves": Membership(Halves()),
                "control run": Membership(Halves(is_null=True)),
                "canaries": Membership(Canaries(models=1)),
                "pairs until decided": Membership(ModelPairs(stopping_level=0.05)),
                "file": Membership(GivenModel(AskedFile(MODEL))),
                "table": Membership(GivenModel(ReturnedTable(TABLE), models=0)),
            },
        ),
        (RELATIONAL, {"trained": ANSWERS, "table": with_settings(ANSWERS, predictions=Predictions("in/answers.json"))}),
        (
            TEXT,
            {
                "secrets": Text(Secrets(pairs=3, references=1999)),
                "documents": Text(Documents()),
                "insertions": Text(Insertions(base=PUBLIC, reading=TUNED)),
                "planted": Text(Planted(source=RankingModel(LanguageModel("tiny-gpt")))),
                "identifiers": Text(Identifiers(source=ReturnedProbabilities(TABLE))),
                "comparison": Text(TextComparison(comparison_texts=TEXTS, source=AskedModel(PUBLIC))),
            },
        ),
        (
            UNIQUE_FEATURE,
            {
                "pairs": UniqueFeature(),
                "until decided": configure(canaries=12, drawn=True, stopping_level=0.05),
                "panel": UniqueFeature(Panel(seeds=3)),
                "files": UniqueFeature(Given((28, 28, 1), ModelFiles((MODEL, ModelFile("other.pt"))))),
                "table": UniqueFeature(Given((28, 28, 1), ReturnedOutputs((TABLE,)))),
            },
        ),
    ],
    ids=["deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature"],
)
def test_certificate_names_examined_models(golden: Golden, audit: Audit, configs: dict[str, Any]) -> None:
    for name, config in configs.items():
        certificate = audit.certify("Is it?", config, SUMMARY.empty_table())
        assert certificate is not None
        golden(certificate.examined, name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tiny-gpt#16x1", "tiny-gpt#16x1"),
        ("hub:org/base", "base"),
        ("folder:data/tuned", "tuned"),
        ("folder:data/base+data/adapter", "base+adapter"),
    ],
)
def test_language_model_is_named_without_its_folder(name: str, expected: str) -> None:
    assert shorten_model(LanguageModel(name)) == expected
