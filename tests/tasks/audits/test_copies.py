"""Copies of an image in a user's data are one record, on one side of every split, and the answer counts the copies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tasks.audits.deja_vu import AUDIT as DEJA_VU
from tasks.audits.deja_vu import DejaVu
from tasks.audits.density import AUDIT as DENSITY
from tasks.audits.density.config import Density, KFold, Memorization, ModelTraining
from tasks.audits.density.trainings import trainings as density_trainings
from tasks.audits.forgetting import AUDIT as FORGETTING
from tasks.audits.forgetting import Forgetting
from tasks.audits.forgetting.query_set import QuerySet, load_probes
from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership.config import Halves, Membership
from tasks.audits.membership.trainings import trainings as trained_models
from tasks.audits.relational import AUDIT as RELATIONAL
from tasks.audits.relational import Relational
from tasks.audits.relational.measures.questions import Scoring, score
from tasks.audits.text import AUDIT as TEXT
from tasks.audits.text import Text
from tasks.audits.text.given.model import ComparedTexts, both_sets, given_question
from tasks.audits.unique_feature import AUDIT as UNIQUE_FEATURE
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.pairs import canary_selection
from tasks.audits.unique_feature.pairs.canary_selection import CanaryChoice, canaries, choose_canaries
from tasks.contract.audit import Audit
from tasks.contract.copy_counts import describe_copies
from tasks.contract.job import Job
from tasks.contract.measure import summarise
from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.catalog import load, load_with_boxes, pin
from tasks.datasets.copies import CopyCount, first_copies
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Rows
from tasks.question_answering.question_sets import ANSWERS
from tasks.training.classifier_config import ClassifierTraining
from tasks.training.density import member_of
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.text.made_up import configure
from tests.tasks.audits.unique_feature import made_up

COUNT = 60
COPY_COUNT = 5


def noise(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (28, 28), np.uint8))


def user_folder(folder: Path, copies: int, offset: int = 0) -> Dataset:
    """60 training images of two classes, of which `copies` are the same image, and different test images."""
    for number in range(COUNT):
        path = folder / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(offset if number < copies else offset + number).save(path)
    for number in range(10):
        path = folder / "test" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(offset + 1000 + number).save(path)
    return pin(Dataset(f"folder:{folder}#28x28#grey"))


def user_boxes(folder: Path, copies: int) -> Dataset:
    """60 boxed images, of which the first `copies` are one image in two encodings."""
    lines = ["path,label,left,top,right,bottom"]
    for number in range(COUNT):
        name = f"{number:02}.{'bmp' if 0 < number < copies else 'png'}"
        noise(0 if number < copies else number).save(folder / name)
        lines.append(f"{name},{'ab'[number % 2]},10,10,20,20")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"boxed:{folder / 'boxes.csv'}"))


def user_texts(folder: Path, copies: int) -> Dataset:
    lines = []
    for number in range(COUNT):
        lines.append(f'{{"id": "{number}", "text": "Note {0 if number < copies else number}."}}')
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"records:{folder / 'texts.jsonl'}"))


def user_questions(folder: Path, copies: int) -> Dataset:
    """120 questions, of which the first `copies` are one question."""
    lines = []
    for number in range(2 * COUNT):
        content = 0 if number < copies else number
        fields = {
            "context": f"Room {content} has {content} chairs.",
            "question": "How many?",
            "answers": [str(content)],
        }
        split = "train" if number < COUNT else "validation"
        lines.append(json.dumps({"id": str(number), "split": split, **fields}))
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"records:{folder / 'questions.jsonl'}"))


def user_identifiers(folder: Path, copies: int) -> Dataset:
    """60 different texts with an identifier each; the first `copies` identifiers are equal."""
    lines = []
    for number in range(COUNT):
        content = 0 if number < copies else number
        lines.append(json.dumps({"id": str(number), "text": f"Text {number} has key-{content:016x}."}))
    (folder / "identifiers.jsonl").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"records:{folder / 'identifiers.jsonl'}"))


def membership(folder: Path, copies: int) -> Membership:
    return Membership(Halves(user_folder(folder, copies), models=4), ClassifierTraining(epochs=1))


def density(folder: Path, copies: int) -> Density:
    training = ModelTraining(epochs=1, evaluation_interval=0)
    return Density(Memorization(user_folder(folder, copies), training, KFold(3), repetitions=2))


def forgetting(folder: Path, copies: int) -> Forgetting:
    calibration = Part(user_folder(folder / "calibration", 1, offset=5000))
    query = QuerySet(user_folder(folder / "query", copies))
    config = Forgetting(query=query, calibration=calibration)
    return with_settings(config, targets="D_C+0.5D_Q", epochs=1)


def unique_feature(folder: Path, copies: int) -> UniqueFeature:
    data = user_folder(folder, copies)
    return with_settings(UniqueFeature(), data=data, probe=Dataset("digits"), canaries=20, epochs=1)


def deja_vu(folder: Path, copies: int) -> DejaVu:
    data = user_boxes(folder, copies)
    sizes = {"per_class": 4, "reserved_per_class": 4, "public": 10, "smallest": 4}
    return with_settings(DejaVu(), data=data, epochs=1, warmup=0, probe=False, retrieval=None, **sizes)


def text(folder: Path, copies: int) -> Text:
    return configure(data=user_texts(folder, copies), documents=20, models=4, epochs=1)


def self_influence(folder: Path, copies: int) -> UniqueFeature:
    return with_settings(unique_feature(folder, copies), choice="self-influence")


def identifiers(folder: Path, copies: int) -> Text:
    return configure(data=user_identifiers(folder, copies), identifiers=("key-{hex:16}",), secrets=20)


def other_texts(folder: Path, copies: int) -> Text:
    (folder / "others").mkdir()
    path = folder / "others" / "others.jsonl"
    path.write_text("".join(f'{{"id": "{number}", "text": "Other {number}."}}\n' for number in range(COUNT)))
    return configure(data=user_texts(folder, copies), comparison_texts=pin(Dataset(f"records:{path}")))


def relational(folder: Path, copies: int) -> Relational:
    return with_settings(Relational(), data=user_questions(folder, copies), model="tiny-t5", epochs=1)


def data_of(config: Any) -> Dataset:
    match config:
        case Forgetting():
            return config.query.data
        case Density(question=Memorization(data=data)):
            return data
    return config.data  # type: ignore[no-any-return]


def copied_rows(data: Dataset) -> Rows:
    """The training rows of the image that occurs several times."""
    first = first_copies(load(data))
    return np.flatnonzero(np.bincount(first, minlength=len(first))[first] > 1)


def membership_sides(config: Membership) -> Iterator[Rows]:
    images = load(config.data)
    for job in trained_models(config):
        for share in job.inputs[0].config.shares:
            yield share.rows(images)


def density_sides(config: Density) -> Iterator[Rows]:
    plan = density_trainings(config.question)
    assert plan is not None
    for job in plan.fits:
        yield member_of(job.config, load(plan.config.data)).rows


def forgetting_sides(config: Forgetting) -> Iterator[Rows]:
    probes = load_probes(config.probes)
    yield probes.rows[probes.is_control]
    yield probes.rows[~probes.is_control]


def deja_vu_sides(config: DejaVu) -> Iterator[Rows]:
    yield from split_pictures(load_with_boxes(config.data), config.partition).rows_by_part.values()


AUDITS = [
    (MEMBERSHIP, membership),
    (DENSITY, density),
    (FORGETTING, forgetting),
    (UNIQUE_FEATURE, unique_feature),
    (DEJA_VU, deja_vu),
    (TEXT, text),
    (UNIQUE_FEATURE, self_influence),
    (TEXT, identifiers),
    (TEXT, other_texts),
    (RELATIONAL, relational),
]
SIDES = [
    (membership, membership_sides),
    (density, density_sides),
    (forgetting, forgetting_sides),
    (deja_vu, deja_vu_sides),
]


def planned_summary(audit: Audit, config: Any) -> Any:
    """The configuration of the summary."""
    job = audit.plan(config)["summary"]
    assert isinstance(job, Job)
    return job.config


@pytest.mark.parametrize(("audit", "make"), AUDITS)
def test_every_audit_counts_copies(audit: Audit, make: Any, tmp_path: Path) -> None:
    about = planned_summary(audit, make(tmp_path, COPY_COUNT))
    assert about.copies.groups == 1
    assert about.copies.images == COPY_COUNT
    sentence = describe_copies(summarise((), (), about))
    assert re.search(
        rf"^Exact copies count as one record: 1 of the \d+ records represents {COPY_COUNT} \w+\.$", sentence
    )
    assert about.copies.records in (
        COUNT - COPY_COUNT + 1,
        2 * COUNT - COPY_COUNT + 1,
    )  # of two data sets, or of both splits


@pytest.mark.parametrize(("audit", "make"), AUDITS)
def test_without_copies_nothing_is_counted(audit: Audit, make: Any, tmp_path: Path) -> None:
    about = planned_summary(audit, make(tmp_path, 1))
    assert about.copies == CopyCount()
    assert describe_copies(summarise((), (), about)) == ""


@pytest.mark.parametrize(("make", "sides"), SIDES)
def test_copies_are_on_one_side(make: Any, sides: Any, tmp_path: Path) -> None:
    config = make(tmp_path, COPY_COUNT)
    if isinstance(config, DejaVu):
        copies = np.arange(COPY_COUNT)
    else:
        copies = copied_rows(data_of(config))
    copies_per_side = [int(np.isin(copies, rows).sum()) for rows in sides(config)]
    assert len(copies) == COPY_COUNT
    assert copies_per_side
    assert set(copies_per_side) <= {0, COPY_COUNT}


def test_copies_are_one_canary(tmp_path: Path) -> None:
    config = with_settings(unique_feature(tmp_path, COPY_COUNT), canaries=COUNT - COPY_COUNT + 1)
    images = load(config.question.data)
    rows = [canary.image for canary in canaries(config, config.question, images)]
    assert np.isin(rows, copied_rows(config.question.data)).sum() == 1
    more = with_settings(config, canaries=COUNT - COPY_COUNT + 2)
    with pytest.raises(ValueError, match="canaries is 57; it must be at most 56, the training images that differ"):
        canaries(more, more.question, images)


def test_copies_are_one_canary_by_self_influence() -> None:
    digits = load(Dataset("digits"))
    rows = np.array([3, 3, 4, 5])  # the first two are copies
    table = made_up.influence([9.0, 9.0, 3.0, 1.0])
    images = replace(digits, train_images=digits.train_images[rows], train_labels=digits.train_labels[rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary_selection, "load", lambda _: images)
        chosen_canaries = choose_canaries(CanaryChoice(2, Dataset("digits")), [table])
    assert chosen_canaries["row"].to_pylist() == [0, 3]


def test_copies_of_training_texts_are_counted_with_secrets(golden: Golden, tmp_path: Path) -> None:
    config = configure(data=user_texts(tmp_path, COPY_COUNT), secrets=4)
    sentence = describe_copies(summarise((), (), planned_summary(TEXT, config)))
    golden(sentence)


def test_copies_of_texts_are_compared_once(tmp_path: Path) -> None:
    compared = given_question(other_texts(tmp_path, COPY_COUNT))
    assert isinstance(compared, ComparedTexts)
    texts, comparison_texts = both_sets(compared)
    assert len(texts) == COUNT - COPY_COUNT + 1
    assert len(comparison_texts) == COUNT


def test_copies_of_a_question_are_scored_once(tmp_path: Path) -> None:
    data = user_questions(tmp_path, COPY_COUNT)
    about = {"epoch": 1, "split": "train", "corrupted": True, "answer": ["0"], "train_loss": 0.0}
    answers = pa.Table.from_pylist([{"id": str(number), **about} for number in range(COPY_COUNT + 2)], ANSWERS)
    scores = score(Scoring(data, 0), [answers])
    assert len(scores) == 3
    assert len(set(scores["id"].to_pylist()) & {str(number) for number in range(COPY_COUNT)}) == 1


def test_limits_begin_with_the_copies(golden: Golden, tmp_path: Path) -> None:
    config = membership(tmp_path, COPY_COUNT)
    answer = MEMBERSHIP.answer(config, summarise((), (), planned_summary(MEMBERSHIP, config)))
    assert answer is not None
    golden(answer.limits)
