"""Disclosed configurations name no patient and no folder. Different private values stay distinguishable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.inspection.disclosure import Disclosure, is_private
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.config_parts import plain
from tasks.audits.forgetting.query_set import ControlSet, QuerySet
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.given_models import Given, ReturnedOutputs
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, Picture, Words
from tasks.datasets.features.kinds import word_pattern
from tasks.external.model_file import ModelFile
from tasks.worker.files import File
from tests.support.settings import with_settings

DIGEST = "a" * 64
FONT = File("/home/ann/fonts/hand.ttf", DIGEST)
JANE = Words("JANE DOE", FONT, size=9)


def write_run(folder: Path, **about: Any) -> Path:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"audit": "unique_feature", **about}))
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("JANE DOE", "4 and 3 letters"),
        ("J", "1 letter"),
        ("12 05 1961", "2 and 2 and 4 digits"),
        ("O'HARA 7", "6 and 1 characters"),
    ],
)
def test_words_are_described_by_their_lengths(words: str, expected: str) -> None:
    assert expected == word_pattern(words)


@pytest.mark.parametrize(
    ("private", "public"),
    [
        (Dataset("folder:/home/ann/ward 7/scans#20x20", DIGEST), Dataset("folder:scans#20x20", DIGEST)),
        (Dataset("mnist", DIGEST), Dataset("mnist", DIGEST)),
        (FONT, File("hand.ttf", DIGEST)),
        (ModelFile("/home/ann/m.pt", DIGEST), ModelFile("m.pt", DIGEST)),
        (ModelFile("ward.nets:make+/home/ann/w.npz"), ModelFile("ward.nets:make+w.npz")),
        (Picture(File("/x/stamp.png"), File("/x/mask.png")), Picture(File("stamp.png"), File("mask.png"))),
        (JANE, Words("<4 and 3 letters>", File("hand.ttf", DIGEST), size=9)),
        (Glyph(), Glyph()),
        (
            QuerySet(Dataset("digits"), control=ControlSet(secret="b1946ac92492d2347c62")),
            QuerySet(Dataset("digits"), control=ControlSet(secret="<secret of 20 characters>")),
        ),
        (QuerySet(Dataset("digits")), QuerySet(Dataset("digits"))),
        (Family("names", names=FONT), Family("names", names=File("hand.ttf", DIGEST))),
        (
            Given((8, 8, 1), ReturnedOutputs(outputs=(FONT,))),
            Given((8, 8, 1), ReturnedOutputs(outputs=(File("hand.ttf", DIGEST),))),
        ),
    ],
)
def test_only_private_values_are_replaced(private: Any, public: Any) -> None:
    assert public == Disclosure().public(private)
    assert is_private(private) == (private != public)


def test_equal_words_get_equal_placeholders() -> None:
    disclosure = Disclosure()
    public_words = []
    for words in ("JANE DOE", "JOHN ROE", "JANE DOE"):
        public_words.append(disclosure.public(Words(words)).words)
    assert public_words == ["<4 and 3 letters>", "<4 and 3 letters (2)>", "<4 and 3 letters>"]


def test_words_can_be_disclosed_without_folders() -> None:
    assert replace(JANE, font=File("hand.ttf", DIGEST)) == Disclosure(words=True).public(JANE)


def test_sweep_settings_keep_their_form(tmp_path: Path) -> None:
    config = UniqueFeature(feature=JANE)
    settings = [
        {"feature": "words:JANE DOE", "feature.words": "JANE DOE", "feature.font": "fonts/hand.ttf", "epochs": 3},
        {
            "feature": "words:JOHN ROE",
            "feature.words": "JOHN ROE",
            "question.data": "folder:../ann/scans",
            "scale": "tiny",
        },
    ]
    other_config = with_settings(
        config, feature=replace(JANE, words="JOHN ROE"), data=Dataset("folder:/home/ann/scans", DIGEST)
    )
    for name, cell_config in (("one", with_settings(config, epochs=3)), ("two", other_config)):
        write_run(tmp_path / name, config=plain(cell_config), setting=None)
    sweep = Disclosure().journal(write_run(tmp_path / "sweep", cells=["one", "two"], settings=settings))
    one, two = sweep.about()["settings"]
    assert one == {
        "feature": "words:<4 and 3 letters>",
        "feature.words": "<4 and 3 letters>",
        "feature.font": "hand.ttf",
        "epochs": 3,
    }
    assert list(two.values()) == ["words:<4 and 3 letters (2)>", "<4 and 3 letters (2)>", "folder:scans", "tiny"]
    assert sweep.sibling("two").about()["config"]["feature"]["words"] == "<4 and 3 letters (2)>"


def test_config_of_a_removed_audit_withholds_all_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "old", config={"feature": {"words": "JANE DOE"}, "gone": [1, "x"], "n": 2.5})
    disclosed = {"feature": {"words": "<withheld>"}, "gone": [1, "<withheld>"], "n": 2.5}
    assert disclosed == Disclosure().journal(folder).about()["config"]


def test_config_without_private_values_is_unchanged(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", config={"canaries": 3})
    assert Journal(folder).about() == Disclosure().journal(folder).about()


def test_requested_settings_are_disclosed_like_the_config(tmp_path: Path) -> None:
    config = plain(with_settings(UniqueFeature(), data=Dataset("folder:/home/ann/scans#20x20", DIGEST), feature=JANE))
    fields = {
        "feature.words": "JANE DOE",
        "question.data": "folder:/home/ann/scans#20x20",
        "question.canaries": "4",
    }
    request = {"preset": "quickstart", "set": fields, "sweep": {}, "tolerate": 0}
    disclosed = Disclosure().journal(write_run(tmp_path / "one", config=config, asked=request)).about()["asked"]
    public = {
        "feature.words": "<4 and 3 letters>",
        "question.data": "folder:scans#20x20",
        "question.canaries": "4",
    }
    assert disclosed == {**request, "set": public}


def test_removed_audit_withholds_requested_text(tmp_path: Path) -> None:
    request = {"set": {"words": "JANE DOE", "size": 5}, "sweep": {}}
    folder = write_run(tmp_path / "one", config={"gone": "x"}, asked=request)
    assert Disclosure().journal(folder).about()["asked"]["set"] == {"words": "<withheld>", "size": 5}


def test_requested_sweep_values_match_their_cells(tmp_path: Path) -> None:
    names = ("JANE DOE", "JOHN ROE")
    for name in names:
        config = plain(UniqueFeature(feature=replace(JANE, words=name)))
        write_run(tmp_path / name, config=config, setting={"feature.words": name})
    settings = [{"feature.words": name, "canaries": 2} for name in names]
    request = {"set": {}, "sweep": {"feature.words": list(names), "canaries": ["2", "2.0"]}}
    about = {"cells": list(names), "settings": settings, "asked": request}
    disclosed = Disclosure().journal(write_run(tmp_path / "sweep", **about)).about()["asked"]["sweep"]
    assert disclosed == {"feature.words": ["<4 and 3 letters>", "<4 and 3 letters (2)>"], "canaries": [2]}
