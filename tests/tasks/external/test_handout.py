"""Images for a model's owner: written, evaluated by the included script, and read back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from tasks.datasets.dataset import DatasetError
from tasks.external import loading
from tasks.external.handout import ToEmbed, write_pictures, write_to_embed
from tasks.external.model_file import ModelFile
from tasks.external.outputs import read_outputs
from tasks.external.sent_table import read_embeddings
from tasks.worker.files import File

GREY = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 1), np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (2, 5, 4, 3), np.uint8)
SETS = [("clean", GREY), ("patched-1", COLOUR)]


def files(folder: Path) -> dict[str, bytes]:
    result = {}
    for path in folder.rglob("*"):
        if path.is_file():
            result[str(path.relative_to(folder))] = path.read_bytes()
    return result


def test_images_keep_their_pixels(tmp_path: Path) -> None:
    table = write_pictures(tmp_path / "out", SETS)
    assert table.to_pylist() == pd.read_csv(tmp_path / "out" / "images.csv").to_dict("records")
    expected = [("clean/000000.png", "clean", 0), ("patched-1/000001.png", "patched-1", 1)]
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert len(rows) == 5
    assert [rows[0], rows[-1]] == expected
    np.testing.assert_array_equal(GREY[2, ..., 0], np.asarray(Image.open(tmp_path / "out" / "clean" / "000002.png")))
    np.testing.assert_array_equal(COLOUR[1], np.asarray(Image.open(tmp_path / "out" / "patched-1" / "000001.png")))


def test_equal_images_give_equal_bytes(tmp_path: Path) -> None:
    write_pictures(tmp_path / "a", SETS)
    write_pictures(tmp_path / "b", SETS)
    original = files(tmp_path / "a")
    assert original == files(tmp_path / "b")
    (tmp_path / "b" / "images.csv").unlink()
    (tmp_path / "b" / "clean" / "000001.png").rename(tmp_path / "b" / "clean" / "000001.png.part")
    write_pictures(tmp_path / "b", SETS)
    assert original == files(tmp_path / "b")


def test_readme_contains_the_commitment(tmp_path: Path) -> None:
    write_pictures(tmp_path / "told", SETS, commitment="ab" * 32)
    write_pictures(tmp_path / "not", SETS)
    with_commitment = (tmp_path / "told" / "README.txt").read_text()
    without_commitment = (tmp_path / "not" / "README.txt").read_text()
    assert f"\n    {'ab' * 32}\n" in with_commitment
    assert ("Our commitment" in with_commitment, "Our commitment" in without_commitment) == (True, False)
    assert with_commitment.splitlines()[:20] == without_commitment.splitlines()[:20]


def test_folder_with_other_files_is_kept(tmp_path: Path) -> None:
    write_pictures(tmp_path / "a", SETS)
    before = files(tmp_path / "a")
    with pytest.raises(DatasetError, match=r"is not empty: clean/000000.png has different content"):
        write_pictures(tmp_path / "a", [("clean", GREY + 1), *SETS[1:]])
    with pytest.raises(DatasetError, match=r"is not empty: images.csv has different content"):
        write_pictures(tmp_path / "a", [*SETS, ("more", GREY)])
    assert before == files(tmp_path / "a")
    (tmp_path / "a" / "thesis.tex").write_text("years of work")
    with pytest.raises(
        DatasetError, match=r"is not empty: thesis.tex is not one of the files to write; choose a new folder"
    ):
        write_pictures(tmp_path / "a", SETS)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "no images"),
        ([("a/b", GREY)], "set 0 is named 'a/b'"),
        ([("..", GREY)], "set 0 is named"),
        ([("a", GREY), ("a", GREY)], "two sets are named 'a'"),
        ([("a", GREY[..., 0])], "set 'a' is uint8"),
        ([("a", GREY[:0])], "set 'a' is uint8"),
    ],
)
def test_invalid_sets_are_refused(tmp_path: Path, sets: list[tuple[str, np.ndarray]], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        write_pictures(tmp_path / "out", sets)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_readme_script_returns_model_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the script in that folder, as the owner does, without this package."""
    folder = tmp_path / "out"
    pictures = write_pictures(folder, [("one", COLOUR), ("two", COLOUR[::-1].copy())])
    text = (folder / "README.txt").read_text()
    assert max(map(len, text.splitlines())) <= 120
    script = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ") or not line)
    script = script[script.index("import csv") :]
    assert "tasks" not in script
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(60, 4)).eval()
    torch.jit.script(net).save(str(tmp_path / "model.pt"))
    (tmp_path / "model.pt").rename(folder / "model.pt")
    monkeypatch.chdir(folder)
    exec(script, {})
    script_outputs = read_outputs(File(str(folder / "outputs.csv"))).select(pictures.column("image").to_pylist())
    direct_outputs = loading.log_probabilities(
        ModelFile(str(folder / "model.pt")), np.concatenate([COLOUR, COLOUR[::-1]])
    )
    np.testing.assert_allclose(script_outputs.log_p, direct_outputs.log_p, rtol=0, atol=1e-5)


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 3), np.uint8)


def sets(pixels: np.ndarray = PIXELS) -> list[tuple[str, ToEmbed]]:
    def some() -> Iterator[np.ndarray]:
        yield pixels[:2]
        yield pixels[2:3]

    return [("crops", ToEmbed(3, some)), ("public", ToEmbed(2, lambda: iter([pixels[3:]])))]


def test_embedding_images_are_listed_with_their_pixels(tmp_path: Path) -> None:
    table = write_to_embed(tmp_path / "out", sets())
    ids = [f"crops/00000{index}.png" for index in range(3)] + [f"public/00000{index}.png" for index in range(2)]
    assert ids == table["image"].to_pylist()
    for pixels, image in zip(PIXELS, ids, strict=True):
        np.testing.assert_array_equal(pixels, np.asarray(Image.open(tmp_path / "out" / image)))
    listed_lines = (tmp_path / "out" / "images.csv").read_text().splitlines()
    assert listed_lines[:2] == ["image,set,row", "crops/000000.png,crops,0"]
    assert len(listed_lines) == 6


def test_incomplete_folder_is_completed_but_others_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_to_embed(folder, sets())
    original = files(folder)
    (folder / "images.csv").unlink()
    (folder / "crops" / "000001.png").rename(folder / "crops" / "000001.png.part")
    write_to_embed(folder, sets())
    assert original == files(folder)
    with pytest.raises(DatasetError, match=r"is not empty: crops/000000.png has different content"):
        write_to_embed(folder, sets(PIXELS + 1))
    assert original == files(folder)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(
        DatasetError, match=r"is not empty: thesis.tex is not one of the files to write; choose a new folder"
    ):
        write_to_embed(folder, sets())


def test_invalid_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there are no images to write"):
        write_to_embed(tmp_path, [("crops", ToEmbed(0, lambda: iter([])))])
    with pytest.raises(DatasetError, match=r"set 'crops' is float64 \(1, 6, 6, 3\)"):
        write_to_embed(tmp_path, [("crops", ToEmbed(1, lambda: iter([PIXELS[:1] / 2])))])


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_script_writes_readable_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    table = write_to_embed(folder, sets())
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()).eval()
    torch.jit.script(encoder).save(str(folder / "encoder.pt"))
    readme = (folder / "README.txt").read_text()
    script = re.sub("(?m)^    ", "", readme[readme.index("    import csv") :])
    monkeypatch.chdir(folder)
    exec(script, {})
    embeddings = read_embeddings(File(str(folder / "embeddings.parquet"))).select(table["image"].to_pylist())
    with torch.no_grad():
        expected = encoder(torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255).numpy()
    np.testing.assert_allclose(expected, embeddings, rtol=1e-5, atol=1e-6)
