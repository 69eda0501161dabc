"""A user's own files enter a run by their content, wherever in its config they are named.

A sweep's cells are told apart by as few fields as it takes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec.resolve import Cell, distinguishing_fields, label, pin_cells, read_spec, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.pinnable import Pinnable, Unavailable
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature, Glyph, Picture, Words
from tasks.external.model_file import ModelFile
from tasks.models.catalog import Network
from tasks.worker.files import File

TABLE = [
    {"data": data, "probe": probe, "network": network, "batch": batch}
    for data, probe, network, batch in (
        ("mnist", "cifar10", "mlp1", 128),
        ("fashion-mnist", "cifar10", "mlp1", 128),
        ("mnist", "cifar10", "cnn1", 128),
        ("fashion-mnist", "cifar10", "cnn1", 128),
        ("cifar10", "mnist", "cnn2", 512),
        ("cifar10", "mnist", "densenet100", 32),
    )
]


@dataclass(frozen=True)
class Inner:
    features: tuple[Feature, ...] = ()


@dataclass(frozen=True)
class Config:
    inner: Inner = Inner()
    font: File | None = None
    data: Dataset = Dataset("digits")


def only(config: Config) -> Config:
    (cell,) = pin_cells([Cell("made_up", config, None, {})], {})
    found: Config = cell.config
    return found


def test_every_file_in_a_config_is_pinned_however_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").write_bytes(b"here")
    monkeypatch.chdir(tmp_path)
    given, expected = File("here"), File(str(tmp_path / "here"), hashlib.sha256(b"here").hexdigest())
    found = only(Config(Inner((Glyph(), Picture(given), Words("J", font=given))), given))
    assert Inner((Glyph(), Picture(expected), Words("J", font=expected))) == found.inner
    assert expected == found.font


def test_a_file_that_is_not_there_is_the_machines_fault_and_an_unknown_set_the_users(tmp_path: Path) -> None:
    with pytest.raises(EngramError) as caught:
        only(Config(font=File(str(tmp_path / "gone"))))
    assert (f"there is no file {tmp_path}/gone", False) == (str(caught.value), isinstance(caught.value, SpecError))
    with pytest.raises(EngramError) as caught:
        only(Config(data=Dataset(f"folder:{tmp_path}/gone")))
    assert not isinstance(caught.value, SpecError)
    for name in ("digit", "digits#gray", "folder:gone#gray"):
        with pytest.raises(SpecError):
            only(Config(data=Dataset(name)))


@dataclass(frozen=True)
class Sentence:
    """A kind of an audit's own: a sentence, pinned by its length."""

    text: str
    digest: str = ""

    def identity(self) -> str:
        return self.digest

    def pin(self, known: MutableMapping[str, str]) -> Sentence:
        if not self.text:
            raise ValueError("the sentence is empty")
        if self.text == "lost":
            raise Unavailable("there is no such sentence any more")
        known["asked"] = f"{known.get('asked', '')}{self.text[0]}"
        return replace(self, digest=f"{len(self.text):x}")


@dataclass(frozen=True)
class Spoken:
    said: tuple[Sentence, ...]
    again: Sentence | None = None


def test_what_an_audit_declares_is_pinned_in_its_own_way_and_once() -> None:
    known: dict[str, str] = {}
    config = Spoken((Sentence("one"), Sentence("three")), Sentence("one"))
    (cell,) = pin_cells([Cell("made_up", config)], known)
    assert Spoken((Sentence("one", "3"), Sentence("three", "5")), Sentence("one", "3")) == cell.config
    assert known == {"asked": "ot"}


def test_of_an_audits_own_kinds_too_a_slip_is_the_users_and_what_is_gone_the_machines() -> None:
    with pytest.raises(SpecError, match="the sentence is empty"):
        pin_cells([Cell("made_up", Spoken((Sentence(""),)))], {})
    with pytest.raises(EngramError, match="there is no such sentence any more") as caught:
        pin_cells([Cell("made_up", Spoken((Sentence("lost"),)))], {})
    assert not isinstance(caught.value, SpecError)


@pytest.mark.parametrize(
    ("thing", "is_slip", "said"),
    [
        (Dataset("digit"), True, "unknown data set 'digit'"),
        (Dataset("digits", "00"), False, "is not the one that was pinned"),
        (File("/gone"), False, "there is no file /gone"),
        (Network("nowhere:made"), True, "there is no module 'nowhere'"),
        (Network("mlp9"), True, "mlp9"),
        (ModelFile("/gone.pt"), False, "there is no file /gone.pt"),
        (ModelFile("nowhere:made+/gone.pt"), False, "there is no file /gone.pt"),
    ],
)
def test_each_kind_of_ours_says_itself_what_is_wrong(thing: Pinnable, is_slip: bool, said: str) -> None:
    with pytest.raises(EngramError, match=re.escape(said)) as caught:
        pin_cells([Cell("made_up", thing)], {})
    assert is_slip == isinstance(caught.value, SpecError)


def test_of_fields_that_vary_together_the_first_is_enough() -> None:
    assert distinguishing_fields(TABLE) == ["data", "network"]


def test_every_field_of_a_grid_is_needed() -> None:
    assert distinguishing_fields([{"a": a, "b": b} for a in (1, 2) for b in ([1, 2], None)]) == ["a", "b"]


def test_a_field_that_is_everywhere_the_same_tells_nothing() -> None:
    assert distinguishing_fields([{"a": {"x": 1}, "b": 1}, {"a": {"x": 1}, "b": True}]) == ["b"]
    assert distinguishing_fields([{"a": 1}, {"a": 1}]) == []
    assert distinguishing_fields([]) == []


def test_a_cell_is_named_as_a_command_line_would_ask_for_it() -> None:
    setting = {"data": "mnist", "dropout": True, "epochs": [1, 2], "burnt": None, "feature": {"text": "A"}}
    assert label(setting, [*setting][:4]) == "data=mnist, dropout=true, epochs=[1,2], burnt=null"
    assert label(setting, ["feature", "absent"]) == 'feature={"text": "A"}'


@pytest.mark.parametrize(
    "in_file", ["set: {epochs: 3}", "set: {question: {training: {epochs: 3}}}", "sweep: {epochs: [5, 6]}"]
)
@pytest.mark.parametrize("name", ["epochs", "question.training.epochs"])
def test_flag_overrides_file_whichever_names_they_use(tmp_path: Path, in_file: str, name: str) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text(f"audit: forgetting\npreset: smoke\n{in_file}\n")
    for flags, expected in ((Spec("", None, {name: "4"}), [4]), (Spec("", None, {}, {name: ("1", "2")}), [1, 2])):
        cells = resolve_cells(read_spec(str(path), flags))
        assert [cell.config.question.training.epochs for cell in cells] == expected


def test_flag_that_names_a_field_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text("audit: forgetting\npreset: smoke\nset: {epochs: 3}\n")
    with pytest.raises(SpecError, match=r"question\.training\.epochs is given twice"):
        read_spec(str(path), Spec("", None, {"question.training.epochs": "4", "epochs": "5"}))
