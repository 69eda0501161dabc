"""Every situation with every concern, at a terminal and on the command line, leads to a valid plan."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import orchestrator
from orchestrator.guide import fears_with, find_guide, table_settings, with_full_names
from orchestrator.inspection import results
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.spec_file import read
from tasks.contract.situation import HAVE, Situation
from tests.orchestrator.cli.test_ask import at_a_terminal
from tests.support.shell import PATHS, Here, Shell, refusals
from tests.tasks.audits.text.test_folders import save_folder

PAIRS = [(have, fear) for have in HAVE for fear in fears_with(have)]
CLASSES = 3
ANSWERS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("data", "image"): {"data": "folder:mine", "network": "own:make", "probe": "folder:theirs", "feature": "A"},
    ("data", "set"): {
        "query.data": "folder:mine",
        "query.control.data": "folder:kept",
        "calibration.data": "folder:theirs",
        "network": "mlp1",
    },
    ("data", "answer"): {"data": "records:questions.jsonl", "model": "folder:t5"},
    ("data", "secret"): {"question.data": "records:letters.jsonl", "question.reading.model": "tiny-gpt"},
    ("data", "unknown"): {"data": "folder:mine", "network": "own:make"},
    ("model", "image"): {
        "given.shape": "28,28,1",
        "given.models": "model.pt",
        "probe": "folder:theirs",
        "feature": "A",
    },
    ("model", "set"): {
        "given.models": "model.pt",
        "query.data": "folder:mine",
        "query.control.data": "folder:kept",
        "calibration.data": "folder:theirs",
        "network": "own:make",
    },
    ("model", "answer"): {"model": "folder:t5", "data": "records:questions.jsonl"},
    ("model", "secret"): {
        "question.data": "records:letters.jsonl",
        "question.identifiers": "uuid4",
        "question.source.model": "folder:gpt2",
    },
    ("model", "unknown"): {
        "given.model": "model.pt",
        "given.members": "folder:mine",
        "given.non_members": "folder:theirs",
        "network": "own:make",
    },
    ("outputs", "image"): {"given.shape": "28,28,1", "probe": "folder:theirs", "feature": "A"},
    ("outputs", "set"): {
        "query.data": "folder:mine",
        "query.control.data": "folder:kept",
        "calibration.data": "folder:theirs",
        "network": "own:make",
    },
    ("outputs", "answer"): {"data": "records:questions.jsonl"},
    ("outputs", "secret"): {"question.data": "records:letters.jsonl", "question.identifiers": "uuid4"},
    ("outputs", "unknown"): {"given.members": "folder:mine", "given.non_members": "folder:theirs", "network": "mlp1"},
}
STAND_INS = {
    ("data", "set"): "in a stand-in network, mlp1",
    ("data", "secret"): "in a stand-in language model, tiny-gpt",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small real files: images in classes, texts with identifiers, questions, models of three kinds and a network."""
    folder = tmp_path_factory.mktemp("asked")
    for seed, name in enumerate(("mine", "theirs", "kept")):
        write_images(folder / name, seed)
    texts = []
    for row in range(40):
        texts.append({"id": f"letter{row}", "text": f"Dear {row}, your id is {random_uuid(row)}."})
    write_lines(folder / "letters.jsonl", texts)
    write_lines(
        folder / "questions.jsonl", [question(split, row) for split in ("train", "validation") for row in range(30)]
    )
    for kind in ("t5", "gpt2"):
        save_folder(kind, folder / kind)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, CLASSES))
    torch.jit.trace(model, torch.zeros(2, 1, 28, 28)).save(str(folder / "model.pt"))  # type: ignore[no-untyped-call]
    (folder / "own.py").write_text(
        "import math\nimport torch\n\n\ndef make(shape, classes):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))\n"
    )
    return folder


def write_images(folder: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (90, 28, 28), np.uint8)
    for row, image in enumerate(pixels):
        path = folder / f"class{row % CLASSES}" / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def random_uuid(row: int) -> str:
    digits = f"{random.Random(row).getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def question(split: str, row: int) -> dict[str, object]:
    apples = row + (0 if split == "train" else 100)
    context = f"Ann had {apples} apples and {apples + 7} pears."
    return {
        "id": f"{split}{row}",
        "context": context,
        "question": "How many apples?",
        "answers": [str(apples)],
        "split": split,
    }


def test_every_pair_is_covered() -> None:
    assert set(ANSWERS) == set(PAIRS)


@pytest.mark.parametrize(("have", "fear"), PAIRS)
def test_script_and_terminal_write_the_same_file(
    folder: Path, have: str, fear: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    engram = Here(folder)
    name = f"{have}-{fear}.yaml"
    answers = [f"{field}={value}" for field, value in ANSWERS[have, fear].items()]
    random.Random(0).shuffle(answers)
    first, *rest = answers
    reply = engram.json("ask", first, "--fear", fear, "--out", name, *rest, "--have", have)
    assert reply["audit"] == find_guide(have, fear).audit
    assert reply["stand_in"] == STAND_INS.get((have, fear), "")
    if have != "outputs":
        table = ()
    else:
        table = returned_table(engram, name, find_guide(have, fear).situation)
    assert engram.json("plan", name, *table)["planned"] > 0
    check_terminal(folder, have, fear)


def check_terminal(folder: Path, have: str, fear: str) -> None:
    """Type the answers of a pair, each once, and compare the file with the one that the script wrote."""
    guide = find_guide(have, fear)
    shell = Shell(folder)
    situation = guide.situation
    answers = with_full_names(guide, ANSWERS[have, fear])
    shell.env["PYTHONPATH"] = f"{PATHS}:{folder}"
    typed = [have, fear, *(answers.get(prompt.field, "") for prompt in situation.asks), "no"]
    printed, code = at_a_terminal(shell, typed, "--out", f"typed-{have}-{fear}.yaml")
    assert code == 0, printed
    for prompt in situation.asks:
        assert printed.count(prompt.question) == 1, printed
    files = [read(folder / f"{prefix}{have}-{fear}.yaml") for prefix in ("typed-", "")]
    settings = []
    for spec in files:
        settings.append({name: value for name, value in spec.set.items() if name != situation.secret})
    assert settings[0] == settings[1]
    assert files[0].audit == files[1].audit


def returned_table(engram: Here, name: str, situation: Situation) -> list[str]:
    """Write the probes of a specification and answer each. Returns the settings that name the answers."""
    probes = engram.folder / f"{name}-probes"
    answers = engram.folder / f"{name}-answers"
    engram("probes", name, "--out", probes.name)
    if (probes / "images.csv").exists():
        answer_images(probes / "images.csv", answers.with_suffix(".csv"))
        return table_settings(situation, answers.with_suffix(".csv").name)
    if (probes / "questions").exists():
        answers.mkdir()
        for path in (probes / "questions").iterdir():
            ids = [json.loads(line)["id"] for line in path.read_text().splitlines()]
            (answers / f"{path.stem}.json").write_text(json.dumps(dict.fromkeys(ids, "7")))
        return table_settings(situation, answers.name)
    (path,) = probes.glob("*.jsonl")
    rows = []
    for line in path.read_text().splitlines():
        rows.append({"id": json.loads(line)["id"], "log_p": -9.5})
    write_csv(answers.with_suffix(".csv"), rows)
    return table_settings(situation, answers.with_suffix(".csv").name)


def answer_images(image_list: Path, answers: Path) -> None:
    chance = np.random.default_rng(0)
    with image_list.open(newline="") as file:
        images = [row["image"] for row in csv.DictReader(file)]
    probabilities = chance.dirichlet(np.ones(CLASSES), len(images))
    rows = []
    for image, row in zip(images, probabilities, strict=True):
        rows.append({"image": image} | {f"p{label}": str(p) for label, p in enumerate(row)})
    write_csv(answers, rows)


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_terminal_repeats_only_the_conflicting_question(folder: Path) -> None:
    shell = Shell(folder)
    typed = ["model.pt", "folder:mine", "folder:mine", "mlp1", "", "folder:theirs", "no"]
    printed, code = at_a_terminal(shell, typed, "--have", "model", "--fear", "unknown", "--out", "again.yaml")
    assert code == 0, printed
    questions = {}
    for prompt in find_guide("model", "unknown").situation.asks:
        questions[prompt.field] = prompt.question
    assert "have 72 images in common" in printed
    assert "for a first answer in seconds, without comparison models: engram audit MODEL MEMBERS OTHERS" in printed
    assert {field: printed.count(text) for field, text in questions.items()} == {
        "question.source.model": 1,
        "question.records.members": 2,
        "question.records.non_members": 2,
        "training.network": 1,
    }
    assert read(folder / "again.yaml").set["question.records.non_members"] == "folder:theirs"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["model.pt", "folder:mine", "folder:mine", "mlp1", "", ""], "have 72 images in common"),
        (["no.pt"] * 5, "no answer was accepted in 5 tries: there is no file "),
    ],
)
def test_terminal_stops_without_progress(folder: Path, typed: list[str], message: str) -> None:
    printed, code = at_a_terminal(Shell(folder), typed, "--have", "model", "--fear", "unknown", "--out", "never.yaml")
    assert code != 0, printed
    assert message in printed.splitlines()[-1]
    assert not (folder / "never.yaml").exists()


def test_conflicting_answers_give_one_line_error(folder: Path) -> None:
    answers = ("given.model=model.pt", "given.members=folder:mine", "given.non_members=folder:mine")
    refused = Here(folder)("ask", "--have", "model", "--fear", "unknown", *answers, "--out", "never.yaml", code=1)
    assert "have 72 images in common" in refused.stderr
    assert len(refusals(refused.stderr)) == 1
    assert not (folder / "never.yaml").exists()


def test_answer_and_certificate_name_the_stand_in_first(folder: Path) -> None:
    settings = {"data": f"folder:{folder / 'mine'}", "examples": 60}
    report = orchestrator.run("membership", preset="smoke", store=folder / "smoke", address="none", **settings)
    journal = Journal(report.store.folder("runs", report.run))
    answer = results.answer(journal, report.store)
    certificate = results.certificate(journal, report.store)
    assert answer is not None
    assert answer.sentence.startswith(f"{answer.answer.capitalize()}, in a stand-in network, mlp1: ")
    assert certificate is not None
    assert certificate.findings[0].sentence.startswith("In a stand-in network, mlp1: ")
