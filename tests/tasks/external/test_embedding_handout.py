"""Pictures for an owner who embeds them: written as they come, embedded by the script that comes with them."""

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tasks.datasets.dataset import DatasetError
from tasks.external import embedding_handout
from tasks.external.embedding_handout import ToEmbed
from tasks.external.embeddings import read
from tasks.files import File

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 3), np.uint8)


def sets(pixels: np.ndarray = PIXELS) -> list[tuple[str, ToEmbed]]:
    def some() -> Iterator[np.ndarray]:
        yield pixels[:2]
        yield pixels[2:3]

    return [("crops", ToEmbed(3, some)), ("public", ToEmbed(2, lambda: iter([pixels[3:]])))]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_pictures_are_the_pixels_and_the_list_names_them(tmp_path: Path) -> None:
    table = embedding_handout.write(tmp_path / "out", sets())
    ids = [f"crops/00000{at}.png" for at in range(3)] + [f"public/00000{at}.png" for at in range(2)]
    assert ids == table["image"].to_pylist()
    for pixels, image in zip(PIXELS, ids, strict=True):
        np.testing.assert_array_equal(pixels, np.asarray(Image.open(tmp_path / "out" / image)))
    listed = (tmp_path / "out" / "images.csv").read_text().splitlines()
    assert ["image,set,row", "crops/000000.png,crops,0"] == listed[:2]
    assert 6 == len(listed)


def test_half_a_folder_is_completed_and_one_with_anything_else_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    embedding_handout.write(folder, sets())
    whole = files(folder)
    (folder / "images.csv").unlink()
    (folder / "crops" / "000001.png").rename(folder / "crops" / "000001.png.part")
    embedding_handout.write(folder, sets())
    assert whole == files(folder)
    with pytest.raises(DatasetError, match=r"is not empty: crops/000000.png is not what would be written"):
        embedding_handout.write(folder, sets(PIXELS + 1))
    assert whole == files(folder)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(DatasetError, match=r"is not empty: thesis.tex does not belong there; name a new folder"):
        embedding_handout.write(folder, sets())


def test_what_are_no_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there are no pictures to write"):
        embedding_handout.write(tmp_path, [("crops", ToEmbed(0, lambda: iter([])))])
    with pytest.raises(DatasetError, match=r"set 'crops' is float64 \(1, 6, 6, 3\)"):
        embedding_handout.write(tmp_path, [("crops", ToEmbed(1, lambda: iter([PIXELS[:1] / 2])))])


@pytest.mark.slow
def test_the_script_that_comes_with_them_makes_the_table_that_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    table = embedding_handout.write(folder, sets())
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(encoder).save(str(folder / "encoder.pt"))
    readme = (folder / "README.txt").read_text()
    script = re.sub("(?m)^    ", "", readme[readme.index("    import csv") :])
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=folder, check=True)
    found = read(File(str(folder / "embeddings.parquet"))).select(table["image"].to_pylist())
    with torch.no_grad():
        expected = encoder(torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255).numpy()
    np.testing.assert_allclose(expected, found, rtol=1e-5, atol=1e-6)
