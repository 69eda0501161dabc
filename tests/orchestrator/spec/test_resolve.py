"""A user's own files enter a run by their content, wherever in its config they are named."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec.resolve import Cell, pinned
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature, Glyph, Picture, Words
from tasks.files import File


@dataclass(frozen=True)
class Inner:
    features: tuple[Feature, ...] = ()


@dataclass(frozen=True)
class Config:
    inner: Inner = Inner()
    font: File | None = None
    data: Dataset = Dataset("digits")


def only(config: Config) -> Config:
    (cell,) = pinned([Cell("made_up", config, None, {})], {})
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
