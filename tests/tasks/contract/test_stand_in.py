"""Built-in models in the place of the user's model are named first in every answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.audits.deja_vu import stand_in as of_deja_vu
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.density import stand_in as of_density
from tasks.audits.density.config import Density, Memorization
from tasks.audits.forgetting import stand_in as of_forgetting
from tasks.audits.forgetting.audited import Given
from tasks.audits.forgetting.config import Examples, Forgetting, Scores
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.membership import stand_in as of_membership
from tasks.audits.membership.config import Halves, Membership
from tasks.audits.membership.given_config import AskedFile, GivenModel, TwoSets
from tasks.audits.relational import stand_in as of_relational
from tasks.audits.relational.config import Relational
from tasks.audits.text import stand_in as of_text
from tasks.audits.unique_feature import stand_in as of_unique_feature
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.contract.stand_in import begin_verdict, is_users_own
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.models.catalog import Network
from tasks.training.classifier_config import ClassifierTraining
from tasks.worker.files import File
from tests.support.settings import with_settings
from tests.tasks.audits.text.made_up import configure

OWN = Dataset("folder:scans#28x28#grey")
LETTERS = Dataset("records:letters.jsonl")
READER = with_settings(Relational(), data=LETTERS, model="tiny-t5")
OWN_NETWORK = Network("package.module:factory")
SETS = TwoSets(members=OWN, non_members=Dataset("folder:others#28x28#grey"))
GIVEN = GivenModel(AskedFile(ModelFile("model.pt")), SETS, models=20)
MEMBERSHIP = Membership(Halves(OWN, 100))
FORGETTING = Forgetting(query=QuerySet(OWN))
TARGETS = Given(models=(ModelFile("model.pt"),))


@pytest.mark.parametrize(
    ("stand_in", "config", "description"),
    [
        (of_unique_feature, with_settings(UniqueFeature(), data=OWN), "in a stand-in network, mlp1"),
        (of_unique_feature, with_settings(UniqueFeature(), data=OWN, network=OWN_NETWORK), ""),
        (of_unique_feature, UniqueFeature(), ""),
        (of_membership, MEMBERSHIP, "in a stand-in network, cnn1"),
        (of_membership, Membership(Halves(OWN), ClassifierTraining(OWN_NETWORK)), ""),
        (of_membership, Membership(GIVEN), "compared with a stand-in network, cnn1"),
        (of_membership, Membership(replace(GIVEN, models=0)), ""),
        (of_forgetting, FORGETTING, "in a stand-in network, cnn1"),
        (of_forgetting, replace(FORGETTING, question=Scores(TARGETS)), "compared with a stand-in network, cnn1"),
        (of_forgetting, replace(FORGETTING, question=Examples()), ""),
        (of_density, Density(Memorization(OWN)), "in a stand-in density model, vae"),
        (of_relational, READER, "in a stand-in sequence model, tiny-t5"),
        (of_relational, with_settings(READER, model="folder:t5"), ""),
        (of_text, configure(data=LETTERS), "in a stand-in language model, tiny-gpt"),
        (of_text, configure(data=LETTERS, identifiers=("uuid4",), outputs=File("log_p.csv")), ""),
        (of_deja_vu, DejaVu(Dataset("boxed:boxes.csv")), "in a stand-in encoder, resnet101"),
    ],
)
def test_stand_in_of_a_config(stand_in: Any, config: Any, description: str) -> None:
    assert stand_in(config) == description


@pytest.mark.parametrize(
    ("sentence", "full_sentence"),
    [
        ("Memorised: 3 of 4.", "Memorised, in a stand-in network, mlp1: 3 of 4."),
        ("3 of 4 are found.", "In a stand-in network, mlp1: 3 of 4 are found."),
    ],
)
def test_verdicts_begin_with_the_stand_in(sentence: str, full_sentence: str) -> None:
    assert begin_verdict(sentence, "memorised", "in a stand-in network, mlp1") == full_sentence
    assert begin_verdict(sentence, "memorised", "") == sentence


def test_users_own_names_have_a_colon() -> None:
    names = ("mnist", "digits#28x28", "folder:scans", "tiny-gpt#32x1", "hub:gpt2")
    assert [name for name in names if is_users_own(name)] == ["folder:scans", "hub:gpt2"]
