"""Pictures for an owner: written, asked about by the script that comes with them, and read back as answers."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tasks.datasets.dataset import DatasetError
from tasks.external import handout, loading, outputs
from tasks.external.model_file import ModelFile
from tasks.files import File

GREY = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 1), np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (2, 5, 4, 3), np.uint8)
SETS = [("clean", GREY), ("patched-1", COLOUR)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_pictures_are_the_pixels(tmp_path: Path) -> None:
    table = handout.write(tmp_path / "out", SETS)
    assert table == handout.read(tmp_path / "out")
    expected = [("clean/000000.png", "clean", 0), ("patched-1/000001.png", "patched-1", 1)]
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert (5, expected) == (len(rows), [rows[0], rows[-1]])
    np.testing.assert_array_equal(GREY[2, ..., 0], np.asarray(Image.open(tmp_path / "out" / "clean" / "000002.png")))
    np.testing.assert_array_equal(COLOUR[1], np.asarray(Image.open(tmp_path / "out" / "patched-1" / "000001.png")))


def test_the_same_pictures_are_the_same_bytes_and_half_a_folder_is_completed(tmp_path: Path) -> None:
    handout.write(tmp_path / "a", SETS)
    handout.write(tmp_path / "b", SETS)
    whole = files(tmp_path / "a")
    assert whole == files(tmp_path / "b")
    (tmp_path / "b" / "images.csv").unlink()
    (tmp_path / "b" / "clean" / "000001.png").rename(tmp_path / "b" / "clean" / "000001.png.part")
    with pytest.raises(DatasetError, match=r"has no images.csv, which is written last: it is half written"):
        handout.read(tmp_path / "b")
    handout.write(tmp_path / "b", SETS)
    assert whole == files(tmp_path / "b")


def test_the_owner_is_told_the_commitment_to_the_list_that_says_what_the_pictures_are(tmp_path: Path) -> None:
    handout.write(tmp_path / "told", SETS, commitment="ab" * 32)
    handout.write(tmp_path / "not", SETS)
    told, silent = ((tmp_path / name / "README.txt").read_text() for name in ("told", "not"))
    assert f"\n    {'ab' * 32}\n" in told
    assert ("What we promise" in told, "What we promise" in silent) == (True, False)
    assert told.splitlines()[:20] == silent.splitlines()[:20]


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    handout.write(tmp_path / "a", SETS)
    before = files(tmp_path / "a")
    with pytest.raises(DatasetError, match=r"is not empty: clean/000000.png is not what would be written"):
        handout.write(tmp_path / "a", [("clean", GREY + 1), *SETS[1:]])
    with pytest.raises(DatasetError, match=r"is not empty: images.csv is not what would be written"):
        handout.write(tmp_path / "a", [*SETS, ("more", GREY)])
    assert before == files(tmp_path / "a")
    (tmp_path / "a" / "thesis.tex").write_text("years of work")
    with pytest.raises(DatasetError, match=r"is not empty: thesis.tex does not belong there; name a new folder"):
        handout.write(tmp_path / "a", SETS)


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ([], "no pictures"),
        ([("a/b", GREY)], "set 0 is called 'a/b'"),
        ([("..", GREY)], "set 0 is called"),
        ([("a", GREY), ("a", GREY)], "two sets are called 'a'"),
        ([("a", GREY[..., 0])], "set 'a' is uint8"),
        ([("a", GREY[:0])], "set 'a' is uint8"),
    ],
)
def test_sets_that_cannot_be_written_are_refused(tmp_path: Path, sets: list[tuple[str, np.ndarray]], told: str) -> None:
    with pytest.raises(DatasetError, match=told):
        handout.write(tmp_path / "out", sets)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_script_of_the_readme_gives_what_the_model_says(tmp_path: Path) -> None:
    """Run as the owner would, in that folder, by a process that cannot import this package."""
    folder = tmp_path / "out"
    handout.write(folder, [("one", COLOUR), ("two", COLOUR[::-1].copy())])
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
    done = subprocess.run([sys.executable, "-I", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    said = outputs.read(File(str(folder / "outputs.csv"))).select(handout.read(folder).column("image").to_pylist())
    asked = loading.log_probabilities(ModelFile(str(folder / "model.pt")), np.concatenate([COLOUR, COLOUR[::-1]]))
    np.testing.assert_allclose(said.log_p, asked.log_p, rtol=0, atol=1e-5)
