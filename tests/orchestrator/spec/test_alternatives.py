"""Alternatives: a field with one of several configurations, selected by tag or by the short name of a field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest

from orchestrator.errors import SpecError
from orchestrator.planning.identity import canonical
from orchestrator.spec.config_parts import differing_paths, flatten, plain
from orchestrator.spec.fields import coerce
from tasks.contract.ranges import AtLeast, Ranged
from tests.support.settings import with_settings


@dataclass(frozen=True)
class Likelihood:
    tag: ClassVar[str] = "likelihood"
    weight: int = 1


@dataclass(frozen=True)
class Distance:
    tag: ClassVar[str] = "distance"
    weight: int = 1


@dataclass(frozen=True)
class Hinge:
    tag: ClassVar[str] = "hinge"


@dataclass(frozen=True)
class Plain:
    tag: ClassVar[str] = "none"
    link: int = 0


@dataclass(frozen=True)
class Noise:
    tag: ClassVar[str] = "noise"
    noise: int


@dataclass(frozen=True)
class Group:
    epochs: int = 10
    """Epochs of training."""
    rank: int = 8
    """Rank of the updates."""
    limit: int = 20
    loss: Hinge | Likelihood | Distance = Hinge()
    privacy: Plain | Noise = Plain()


@dataclass(frozen=True)
class Drawing:
    steps: int = 5
    limit: int = 10


@dataclass(frozen=True)
class Interface:
    in_full: ClassVar[bool] = True
    rank: int = 0


@dataclass(frozen=True)
class Secrets(Ranged):
    tag: ClassVar[str] = "secrets"
    secrets: Annotated[int, AtLeast(2)] = 24
    references: int = 499


@dataclass(frozen=True)
class Documents(Ranged):
    tag: ClassVar[str] = "documents"
    documents: Annotated[int, AtLeast(2)] = 24
    models: int = 16
    training: Group = Group(epochs=3)


@dataclass(frozen=True)
class Insertions(Documents):
    tag: ClassVar[str] = "insertions"
    base: str = "tiny"


@dataclass(frozen=True)
class Given:
    tag: ClassVar[str] = "given"
    file: str
    models: int = 1


@dataclass(frozen=True)
class Column:
    prefix: ClassVar[str] = "column:"
    name: str

    @staticmethod
    def parse(text: str) -> Column:
        return Column(text.removeprefix(Column.prefix))


@dataclass(frozen=True)
class Rows:
    tag: ClassVar[str] = "rows"
    source: str = "mnist"
    count: int = 0


@dataclass(frozen=True)
class Sets:
    tag: ClassVar[str] = "sets"
    members: str
    others: str
    count: int = 0


@dataclass(frozen=True)
class Marked:
    tag: ClassVar[str] = "marked"
    source: str
    members: Column
    count: int = 0


@dataclass(frozen=True)
class Asked:
    tag: ClassVar[str] = "asked"
    records: Rows | Sets | Marked = Rows()


Question = Secrets | Documents | Insertions | Given | Asked


@dataclass(frozen=True)
class Drawn:
    tag: ClassVar[str] = "drawn"
    share: float = 0.5


@dataclass(frozen=True)
class Named:
    tag: ClassVar[str] = "named"
    file: str


@dataclass(frozen=True)
class Control:
    rows: Drawn | Named = Drawn()
    draws: int = 99


@dataclass(frozen=True)
class Data:
    folder: str = "photos"
    control: Control | None = None


@dataclass(frozen=True)
class Config:
    question: Question = Secrets()
    other: Given | None = None
    tuning: Group = Group()
    interface: Interface = Interface()
    data: Data = Data()
    seed: int = 0
    drawing: Drawing | None = None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"question": "documents"}, Config(Documents())),
        ({"question": "documents", "question.models": "8"}, Config(Documents(models=8))),
        ({"question.models": "8", "question": "documents"}, Config(Documents(models=8))),
        ({"question": "documents", "question.training.rank": "1"}, Config(Documents(training=Group(3, 1)))),
        ({"question": {"type": "documents", "models": 8}}, Config(Documents(models=8))),
        ({"question": "{type: insertions, base: gpt}"}, Config(Insertions(base="gpt"))),
        ({"question": "given", "question.file": "a", "question.models": 2}, Config(Given("a", 2))),
        ({"question.secrets": 3}, Config(Secrets(3))),
        ({"other": "given", "other.file": "a"}, Config(other=Given("a"))),
        ({"other": "none"}, Config()),
        ({"epochs": "2", "question": "secrets"}, Config(tuning=Group(2))),
        ({"documents": "4"}, Config(Documents(4))),
        ({"base": "gpt", "documents": 4}, Config(Insertions(4, base="gpt"))),
        ({"documents.models": "8"}, Config(Documents(models=8))),
        ({"insertions.training.epochs": 1}, Config(Insertions(training=Group(1)))),
        ({"documents.epochs": 1}, Config(Documents(training=Group(1)))),
        ({"secrets.references": "9"}, Config(Secrets(references=9))),
        ({"references": "9"}, Config(Secrets(references=9))),
        ({"rank": 3, "interface.rank": 4}, Config(tuning=Group(rank=3), interface=Interface(4))),
        ({"limit": 3}, Config(tuning=Group(limit=3))),
        ({"steps": 3}, Config(drawing=Drawing(steps=3))),
        ({"loss": "distance"}, Config(tuning=Group(loss=Distance()))),
        ({"loss": "distance", "weight": 2}, Config(tuning=Group(loss=Distance(2)))),
        ({"weight": 2, "loss": "likelihood"}, Config(tuning=Group(loss=Likelihood(2)))),
        ({"source": "digits"}, Config(Asked(Rows("digits")))),
        ({"asked.count": 3, "source": "digits"}, Config(Asked(Rows("digits", 3)))),
        ({"asked.members": "mine", "asked.others": "theirs", "count": 3}, Config(Asked(Sets("mine", "theirs", 3)))),
        ({"members": "column:seen", "source": "list"}, Config(Asked(Marked("list", Column("seen"))))),
        ({"data.draws": "9"}, Config(data=Data(control=Control(draws=9)))),
        ({"data.share": "0.1"}, Config(data=Data(control=Control(Drawn(0.1))))),
        ({"data.control.file": "a", "draws": 9}, Config(data=Data(control=Control(Named("a"), 9)))),
        ({"question": "documents", "question.rank": 1}, Config(Documents(training=Group(3, 1)))),
        ({"loss.weight": 2, "loss": "likelihood"}, Config(tuning=Group(loss=Likelihood(2)))),
        ({"noise": 2}, Config(tuning=Group(privacy=Noise(2)))),
        ({"privacy.noise": 2}, Config(tuning=Group(privacy=Noise(2)))),
        ({"tuning.privacy.noise": 2}, Config(tuning=Group(privacy=Noise(2)))),
        ({"privacy.link": 2, "privacy": None}, Config(tuning=Group(privacy=Plain(2)))),
        ({"privacy": "null"}, Config()),
    ],
)
def test_alternative_is_selected_by_tag_or_short_name(settings: dict[str, Any], expected: Config) -> None:
    assert with_settings(Config(), settings) == expected


def test_tag_of_the_present_alternative_keeps_its_fields() -> None:
    config = Config(Documents(4, 8))
    assert with_settings(config, {"question": "documents", "documents": 6}) == Config(Documents(6, 8))
    assert with_settings(config, {"question": "insertions"}) == Config(Insertions())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question": "document"}, "question is 'document'; allowed: secrets, documents, insertions, given, asked; "),
        ({"question.models": 8}, "unknown field 'question.models': secrets has secrets, references"),
        ({"question": "documents", "question.references": 8}, "unknown field 'question.references': documents has"),
        ({"question": "given"}, "question.file is missing"),
        ({"question": "documents", "documents": 1}, "documents is 1; it must be at least 2"),
        (
            {"question": {"type": "documents", "secrets": 2}},
            "unknown field question.secrets: question has documents, models",
        ),
        ({"models": 8}, "models is ambiguous; write question=documents question.models=VALUE or "),
        ({"question": "documents", "epochs": 8}, "write question.training.epochs=VALUE or tuning.epochs=VALUE"),
        ({"question": "secrets", "base": "gpt"}, "base is not a field of question=secrets"),
        ({"insertions": "true"}, "'insertions' is not a field but a choice of question: write question=insertions"),
        ({"secrets": 2, "documents": 4}, "unknown field 'question.secrets': documents has documents, models"),
        ({"secrets": 2, "base": "gpt"}, "secrets is not a field of question=insertions, but another setting is"),
        ({"members": "column:seen", "others": "theirs"}, "others is a field of question.records=sets, but another"),
        ({"question": "documents", "references": 9}, "references is not a field of question=documents"),
        ({"asked.others": "theirs", "asked.source": "list"}, "asked.source is not a field of question=asked, "),
        ({"documents.seed": 2}, "unknown field 'question.seed': documents has documents, models, training"),
        ({"epochs": 2, "tuning.epochs": 3, "question": "secrets"}, "tuning.epochs is set twice, once as "),
        (
            {"data.share": 0.1, "data.file": "a"},
            "data.share is not a field of data.control.rows=named, but another",
        ),
        ({"data.control.rows": "named", "data.control.rows.file": "a", "data.share": 1}, "unknown field 'data.share'"),
        ({"data.epochs": 2}, "unknown field 'data.epochs': Data has folder, control"),
        ({"epoch": 2}, "unknown field 'epoch': Config has question, other, tuning, interface, data, seed"),
    ],
)
def test_refusal_names_field_and_choices(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_settings(Config(), settings)
    assert message in str(caught.value)


@pytest.mark.parametrize("config", [Config(), Config(Documents(4), Given("a")), Config(Insertions())])
def test_plain_form_is_read_back(config: Config) -> None:
    assert coerce(plain(config), Config, "config") == config
    assert with_settings(Config(), dict(flatten(plain(config)))) == config
    assert dict(flatten(plain(config))) == dict(flatten(config))


def test_alternatives_with_equal_fields_have_different_forms() -> None:
    assert canonical(Config(Documents())) != canonical(Config(Insertions()))
    forms = [plain(Config(Documents())), plain(Config(Documents(models=8)))]
    assert list(differing_paths(forms)) == ["question.models"]
    assert list(differing_paths([forms[0], plain(Config(Secrets()))])) == ["question"]
