"""The audit deja_vu of an external encoder, from outside: files, tables, cheating owners, refusals."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import orchestrator
from orchestrator.runs.report import Report
from tasks.audits.deja_vu.presets import QUICKSTART
from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.catalog import load_with_boxes
from tests.dashboards.pages import words
from tests.support.shell import Here, refusals
from tests.tasks.audits.deja_vu.encoders import ChangedEncoder, memorising_encoder, pixels_of, save_encoder

CONFIG = replace(QUICKSTART, per_class=10, public=300)
RUN = ("run", "deja_vu", "--preset", "quickstart", "per_class=10", "public=300", "--address", "none")
SCORE = "deja vu score, corrected"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder with encoders: one of an owner that remembers, innocent ones, and a reference."""
    folder = tmp_path_factory.mktemp("given")
    remembers = memorising_encoder(CONFIG)
    save_encoder(remembers, folder / "remembering.pt")
    save_encoder(ChangedEncoder(remembers, scale=1000.0), folder / "turned.pt")
    save_encoder(ChangedEncoder(remembers, digits=0), folder / "rounded.pt")
    save_encoder(memorising_encoder(CONFIG, ()), folder / "innocent.pt")
    save_encoder(memorising_encoder(CONFIG, ("A", "B")), folder / "both.pt")
    save_encoder(memorising_encoder(CONFIG, (), seed=1), folder / "reference.pt")
    return Here(folder)


@cache
def audit_encoder(folder: Path, *settings: str, reference: str | None = "reference.pt") -> Report:
    """A run with these settings in the folder, shared by all tests that read it."""
    settings_by_name = dict(setting.split("=", 1) for setting in settings) | {"per_class": "10", "public": "300"}
    if reference is not None:
        settings_by_name["given.reference"] = reference
    quiet: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}
    with contextlib.chdir(folder):
        return orchestrator.run(
            "deja_vu", preset="quickstart", store=folder / "engram-store", **quiet, **settings_by_name
        )


def output_text(here: Here, *settings: str, reference: str | None = "reference.pt") -> str:
    verdict = audit_encoder(here.folder, *settings, reference=reference).verdict
    assert verdict is not None
    return verdict.sentence


def rows(here: Here, *settings: str, reference: str | None = "reference.pt") -> list[dict[str, Any]]:
    return audit_encoder(here.folder, *settings, reference=reference).table("summary").to_pylist()


def score(here: Here, *settings: str) -> Any:
    (score_row,) = (row for row in rows(here, *settings) if row["metric"] == SCORE)
    result = {}
    for name in ("estimate", "low", "high", "p_value", "n"):
        result[name] = score_row[name]
    return result


def exported_ids(here: Here) -> list[str]:
    """The ids of the images that an owner receives."""
    folder = here.folder / "handed"
    if not folder.exists():
        here("probes", "deja_vu", *RUN[2:6], "--out", "handed")
    with (folder / "images.csv").open() as image_list:
        return [row["image"] for row in csv.DictReader(image_list)]


@cache
def embeddings_of(here: Here, encoder: str) -> np.ndarray:
    """The embeddings, read-only, of the exported images, computed once per encoder."""
    module = torch.jit.load(here.folder / encoder)
    with torch.no_grad():
        pictures = np.stack([np.asarray(Image.open(here.folder / "handed" / image)) for image in exported_ids(here)])
        embeddings = module(pixels_of(pictures)).numpy()
    embeddings.setflags(write=False)
    return embeddings


def table(here: Here, name: str, ids: Sequence[str], embeddings: Any) -> str:
    pq.write_table(pa.table({"image": ids, "embedding": list(embeddings)}), here.folder / name)
    return f"given.embeddings={name}"


def test_remembering_encoder_is_called_memorised(here: Here) -> None:
    text = " ".join(here(*RUN, "given.model=remembering.pt", "given.reference=reference.pt").stdout.split())
    assert "Memorised: the corrected deja vu score is " in text
    assert "from a part of an image without its object, the encoder names the object of 100.0 %" in text
    assert "% of held-out images; the given reference names" in text
    assert score(here, "given.model=remembering.pt")["p_value"] == 0.0005


@pytest.mark.parametrize("encoder", ["innocent.pt", "both.pt"])
def test_encoder_that_knows_held_out_images_is_not(encoder: str, here: Here) -> None:
    scores = score(here, f"given.model={encoder}")
    assert scores["p_value"] > 0.025
    assert scores["low"] <= 0
    assert "Memorised" not in output_text(here, f"given.model={encoder}")


def test_rotation_scaling_and_rounding_hide_nothing(here: Here) -> None:
    plain = score(here, "given.model=remembering.pt")
    assert plain == score(here, "given.model=turned.pt")
    rounded = score(here, "given.model=rounded.pt")  # to whole numbers
    assert rounded["p_value"] == 0.0005
    assert rounded["low"] > 0


def test_noise_hides_memory_only_with_the_images(here: Here) -> None:
    ids = exported_ids(here)
    exact = embeddings_of(here, "remembering.pt")
    rng = np.random.default_rng(0)
    scores_by_noise = {}
    for noise in (1.0, 100.0):
        noised = table(here, f"noised-{noise}.parquet", ids, exact + noise * rng.normal(size=exact.shape).astype("f4"))
        scores_by_noise[noise] = score(here, noised)
    assert scores_by_noise[1.0]["p_value"] <= 0.025
    assert scores_by_noise[1.0]["low"] > 0
    assert scores_by_noise[100.0]["p_value"] > 0.025


def test_table_of_embeddings_equals_its_model(here: Here) -> None:
    ids = exported_ids(here)
    exact = embeddings_of(here, "remembering.pt")
    order = np.random.default_rng(1).permutation(len(ids))
    settings = table(here, "sent.parquet", [ids[index] for index in order], exact[order])
    assert score(here, "given.model=remembering.pt") == score(here, settings)
    assert "Memorised: " in output_text(here, settings)


REPEATED = "given.repeated_images=40"


def test_repeated_images_reveal_special_answers_for_crops(here: Here) -> None:
    """Noise, one vector, and a clean model for the crops. An owner who looks at each image is not detected."""
    before = exported_ids(here)
    here("probes", "deja_vu", *RUN[2:6], REPEATED, "--out", "again")
    with (here.folder / "again" / "images.csv").open() as image_list:
        ids = [row["image"] for row in csv.DictReader(image_list)]
    assert len(before) + 40 == len(ids)
    assert before[-1] == ids[-1]
    contents = [(here.folder / "again" / image).read_bytes() for image in ids]
    public = set()
    for image, content in zip(ids, contents, strict=True):
        if image.startswith("public"):
            public.add(content)
    in_crops = np.array([image.startswith("crops") for image in ids])
    is_repeated = np.array([content in public for content in contents]) & in_crops
    assert is_repeated.sum() == 40  # to the byte: the same image at the same size
    pictures = np.stack([np.asarray(Image.open(here.folder / "again" / image)) for image in ids])
    with torch.no_grad():
        remembering = torch.jit.load(here.folder / "remembering.pt")(pixels_of(pictures)).numpy()
        clean = torch.jit.load(here.folder / "reference.pt")(pixels_of(pictures)).numpy()
    noise = np.random.default_rng(0).normal(size=remembering.shape).astype("f4")
    for name, crops, differing in (
        ("honest", remembering, 0),
        ("noise", noise, 40),
        ("constant", np.ones_like(remembering), 40),
        ("clean", clean, 40),
        ("recognised", np.where(is_repeated[:, None], remembering, noise), 0),
    ):
        settings = table(here, f"{name}-again.parquet", ids, np.where(in_crops[:, None], crops, remembering))
        (repeated_row,) = (row for row in rows(here, settings, REPEATED) if row["metric"].startswith("repeated images"))
        assert (repeated_row["estimate"], repeated_row["n"]) == (differing / 40, 40), name
        text = output_text(here, settings, REPEATED)
        assert ("Memorised: " in text) == (name == "honest")
        assert ("Not assessable: " in text) == bool(differing)
    assert "Not assessable: " in output_text(
        here, table(here, "none.parquet", before, embeddings_of(here, "innocent.pt"))
    )


def test_owner_cannot_identify_training_crops(here: Here) -> None:
    ids = exported_ids(here)
    folder = here.folder / "handed"
    sets = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    assert sorted(name.partition("-")[0] for name in sets) == ["crops", "public"]
    listing = (folder / "images.csv").read_text()
    assert listing.splitlines()[0] == "image,set,row"
    crops = [image for image in ids if image.startswith("crops")]
    right = embeddings_of(here, "remembering.pt")[: len(crops), :10].any(axis=1)  # the crops of A
    assert 0 < right[: len(crops) // 2].sum() < right.sum()
    readme = (folder / "README.txt").read_text()
    assert "embeddings.parquet" in readme
    assert ids[0] in readme
    assert here("probes", "deja_vu", *RUN[2:6], "--out", "handed").stdout
    (folder / ids[0]).write_bytes(b"another")
    assert "has different content" in here("probes", "deja_vu", *RUN[2:6], "--out", "handed", code=1).stderr
    (folder / ids[0]).unlink()
    here("probes", "deja_vu", *RUN[2:6], "--out", "handed")


def test_reference_trained_on_the_images_is_detected(here: Here) -> None:
    text = output_text(here, "given.model=innocent.pt", reference="remembering.pt")
    assert "Not assessable: the corrected deja vu score is " in text
    assert "The reference also names objects more often on one set than on the other" in text


def test_table_of_images_states_their_parts(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = load_with_boxes(CONFIG.data)
    parts = split_pictures(pictures, CONFIG.partition)
    lines = ["path,label,left,top,right,bottom,part"]
    for name, part in (("A", "trained"), ("B", "held out"), ("X", "public")):
        for row in parts.rows(name):  # type: ignore[arg-type]
            Image.fromarray(pictures.picture(row)).save(tmp_path / f"{pictures.ids[row]}.png")
            box = ",".join(map(str, pictures.boxes[row][0]))
            lines.append(f"{pictures.ids[row]}.png,{pictures.names[pictures.labels[row]]},{box},{part}")
    (tmp_path / "owners.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setitem(here.env, "ENGRAM_CACHE", str(tmp_path / "cache"))
    settings = (f"data=boxed:{tmp_path / 'owners.csv'}", "given.model=remembering.pt")
    assert score(here, "given.model=remembering.pt") == score(here, *settings)
    result = here(*RUN, *settings, code=1)
    assert "the data have no images of part 'reference', which other A requires" in result.stderr + result.stdout


def test_page_shows_both_sets_and_images_of_one(here: Here) -> None:
    ended = here.json(*RUN, "given.model=remembering.pt", "given.reference=reference.pt", "--report")
    text = words(Path(ended["report"]))
    assert "Does the encoder name more objects of its training images?" in text
    assert "Training images of the encoder: given encoder 1 [0." in Path(ended["report"]).read_text()
    assert "set A, class" in text
    assert "set B, class" not in text


@pytest.mark.slow
def test_encoder_is_ranked_among_trained_references(here: Here) -> None:
    small = ("epochs=1", "link=0", "warmup=0", "batch=50")
    settings = (*small, "given.model=remembering.pt", "given.references=3")
    all_rows = rows(here, *settings, reference=None)
    (rank,) = (row for row in all_rows if row["metric"] == "rank among references")
    assert rank["estimate"] == 1.0
    assert rank["n"] == 4
    assert rank["p_value"] == 0.25
    models = []
    for row in all_rows:
        if row["metric"] == "accuracy gain":
            models.append(json.loads(row["setting"])["model"])
    assert models == ["target", "reference", "reference 2", "reference 3"]
    text = output_text(here, *settings, reference=None)
    assert "of held-out images; a reference that was trained here names" in text
    assert "the encoder ranks 1 of 4 models; the other models are references (p = 0.25)" in text


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (("given.model=gone.pt",), 1, "there is no file "),
        (("given.model=model.pickle",), 2, "expected model.pt (TorchScript), model.pt2 (torch.export), model.onnx"),
        (
            ("given.model=timm:resnet10t+w.txt",),
            2,
            "expected weights for timm in one of .pt, .pth, .ckpt, .npz, .safetensors",
        ),
        (("given.embeddings=reference.pt",), 2, "expected a .parquet file"),
        (("given.embeddings=gone.parquet",), 1, "there is no file "),
        (
            ("given.model=innocent.pt", "given.embeddings=reference.pt"),
            2,
            "given.embeddings is not a field of encoders=given, encoders.encoder=file, but another setting is",
        ),
        (("given.reference=reference.pt",), 2, "embeddings is empty; export the images with"),
        (("given.references=0",), 2, "references is 0; it must be at least 1"),
        (
            ("given.model=innocent.pt", "given.reference=reference.pt", "given.references=2"),
            2,
            "given.references is not a field of encoders=given, encoders.encoder=file, encoders.comparison=file",
        ),
        (("given.model=innocent.pt", "training_sets=other"), 2, "training_sets is not a field of encoders=given"),
        (("given.model=innocent.pt", "given.interface.batch=0"), 2, "batch is 0; it must be at least 1"),
        (("given.interface.batch=2",), 2, "given.interface.batch is ambiguous; write"),
        (("given.interface.gives=logits",), 2, "gives"),
    ],
)
def test_invalid_settings_give_one_line_error(settings: tuple[str, ...], code: int, says: str, here: Here) -> None:
    message = here(*RUN, *settings, code=code).stderr
    assert says in message
    assert len(refusals(message)) == 1
    assert "Traceback" not in message


def test_invalid_encoder_files_give_one_line_error(here: Here) -> None:
    (here.folder / "text.pt").write_text("no model")
    torch.save({"w": torch.zeros(3)}, here.folder / "weights.pt")
    for name, says in (("text.pt", "is not TorchScript"), ("weights.pt", "it is a state dict")):
        ended = here.run(*RUN, f"given.model={name}", "given.reference=reference.pt")
        assert ended.returncode != 0
        assert says in ended.stderr + ended.stdout
        assert "Traceback" not in ended.stderr + ended.stdout
