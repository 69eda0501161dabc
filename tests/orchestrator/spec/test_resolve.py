"""Cells of a specification: a user's files enter a run by content, wherever the config names them.

The cells of a sweep are distinguished by the smallest set of fields.
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


def pin_config(config: Config) -> Config:
    (cell,) = pin_cells([Cell("made_up", config, None, {})], {})
    pinned: Config = cell.config
    return pinned


def test_every_file_in_a_config_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").write_bytes(b"here")
    monkeypatch.chdir(tmp_path)
    source = File("here")
    expected = File(str(tmp_path / "here"), hashlib.sha256(b"here").hexdigest())
    pinned = pin_config(Config(Inner((Glyph(), Picture(source), Words("J", font=source))), source))
    assert Inner((Glyph(), Picture(expected), Words("J", font=expected))) == pinned.inner
    assert expected == pinned.font


def test_only_an_unknown_data_set_is_spec_error(tmp_path: Path) -> None:
    with pytest.raises(EngramError) as caught:
        pin_config(Config(font=File(str(tmp_path / "gone"))))
    assert (f"there is no file {tmp_path}/gone", False) == (str(caught.value), isinstance(caught.value, SpecError))
    with pytest.raises(EngramError) as caught:
        pin_config(Config(data=Dataset(f"folder:{tmp_path}/gone")))
    assert not isinstance(caught.value, SpecError)
    for name in ("digit", "digits#gray", "folder:gone#gray"):
        with pytest.raises(SpecError):
            pin_config(Config(data=Dataset(name)))


@dataclass(frozen=True)
class Sentence:
    """A configuration class of an audit: a sentence, pinned by its length."""

    text: str
    digest: str = ""

    def identity(self) -> str:
        return self.digest

    def pin(self, digests: MutableMapping[str, str]) -> Sentence:
        if not self.text:
            raise ValueError("the sentence is empty")
        if self.text == "lost":
            raise Unavailable("there is no such sentence any more")
        digests["asked"] = f"{digests.get('asked', '')}{self.text[0]}"
        return replace(self, digest=f"{len(self.text):x}")


@dataclass(frozen=True)
class Spoken:
    sentences: tuple[Sentence, ...]
    extra: Sentence | None = None


def test_audit_classes_are_pinned_their_way_once() -> None:
    digests: dict[str, str] = {}
    config = Spoken((Sentence("one"), Sentence("three")), Sentence("one"))
    (cell,) = pin_cells([Cell("made_up", config)], digests)
    assert Spoken((Sentence("one", "3"), Sentence("three", "5")), Sentence("one", "3")) == cell.config
    assert digests == {"asked": "ot"}


def test_audit_classes_distinguish_slips_from_missing_files() -> None:
    with pytest.raises(SpecError, match="the sentence is empty"):
        pin_cells([Cell("made_up", Spoken((Sentence(""),)))], {})
    with pytest.raises(EngramError, match="there is no such sentence any more") as caught:
        pin_cells([Cell("made_up", Spoken((Sentence("lost"),)))], {})
    assert not isinstance(caught.value, SpecError)


@pytest.mark.parametrize(
    ("thing", "is_slip", "message"),
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
def test_each_class_explains_its_errors(thing: Pinnable, is_slip: bool, message: str) -> None:
    with pytest.raises(EngramError, match=re.escape(message)) as caught:
        pin_cells([Cell("made_up", thing)], {})
    assert is_slip == isinstance(caught.value, SpecError)


def test_first_of_jointly_varying_fields_suffices() -> None:
    assert distinguishing_fields(TABLE) == ["data", "network"]


def test_every_field_of_a_grid_is_needed() -> None:
    assert distinguishing_fields([{"a": a, "b": b} for a in (1, 2) for b in ([1, 2], None)]) == ["a", "b"]


def test_constant_field_distinguishes_nothing() -> None:
    assert distinguishing_fields([{"a": {"x": 1}, "b": 1}, {"a": {"x": 1}, "b": True}]) == ["b"]
    assert distinguishing_fields([{"a": 1}, {"a": 1}]) == []
    assert distinguishing_fields([]) == []


def test_cell_is_named_in_command_line_syntax() -> None:
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
    with pytest.raises(SpecError, match=r"question\.training\.epochs is set twice"):
        read_spec(str(path), Spec("", None, {"question.training.epochs": "4", "epochs": "5"}))
