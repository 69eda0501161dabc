"""From the command line: a user's own folder of pictures, with words or a picture burnt in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.shell import Here
from tests.tasks.datasets import scans

RUN = ("run", "unique_feature", "--preset", "smoke", "--address", "none")
SMALL = ("probe=photos", "canaries=2", "examples=0", "epochs=1")


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    for label, name in enumerate(scans.CLASSES):
        for number in range(10):
            scans.saved(tmp_path / "scans" / name / f"{number}.png", scans.pixels(label, number, 24, 40))
    stamp = np.full((6, 8, 4), 255, np.uint8)
    stamp[..., 1] = 0
    stamp[0, :, 3] = 0
    scans.saved(tmp_path / "stamp.png", stamp)
    return Here(tmp_path)


@pytest.mark.slow
def test_words_and_pictures_are_burnt_into_a_folder_of_ones_own(engram: Here) -> None:
    done = engram(*RUN, *SMALL, "data=folder:scans", "feature=words:JD", "feature.size=9")
    assert "with the words 'JD' changes" in done.stdout
    done = engram(*RUN, *SMALL, "data=folder:scans#20x20#rgb", "feature=picture:stamp.png", "feature.top=2")
    assert "with the picture stamp.png changes" in done.stdout
    again = engram(*RUN, *SMALL, f"data=folder:{engram.folder}/scans", "feature.words=JD", "feature.size=9")
    assert "13 of them stored already" in again.stdout + again.stderr


@pytest.mark.parametrize(
    ("setting", "code", "says"),
    [
        ("data=folder:scan", 1, "no folder "),
        ("data=folder:scans#64", 2, "has no option #64; the options are #HEIGHTxWIDTH, #grey and #rgb"),
        ("data=list:stamp.png", 1, "stamp.png is no list of pictures; it must end in .csv or .parquet"),
        ("feature=picture:none.png", 1, "there is no file "),
        ("feature=words:THIS IS MUCH TOO LONG", 2, "does not fit an image of 28 x 28"),
        ("feature=word:JD", 2, "did you mean 'words:'?"),
        ("feature.font=a.ttf", 2, "unknown field 'feature.font': Glyph has kind, text, size, top, left, seed"),
    ],
)
def test_what_cannot_be_is_one_line(engram: Here, setting: str, code: int, says: str) -> None:
    said = engram(*RUN, setting, code=code).stderr.strip()
    assert says in said
    assert 1 == len(said.splitlines())
