"""Planning reads headers: a data set of 50 times the memory limit is planned within it, without decoding an image."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from tasks.datasets.celeba import PARTITIONS, PICTURES
from tests.support.shell import OWN_VARIABLES, PATHS

LIMIT = 10**9  # bytes of address space, which contains the resident set
SECONDS = 5.0  # of processor time
SIDE = 8000  # pixels
COUNT = 800  # images
FOLDER = ("data=folder:pictures",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder and an ImageNet layout of the same images, which differ in a byte after their end."""
    root = tmp_path_factory.mktemp("large")
    encoded = io.BytesIO()
    Image.new("L", (SIDE, SIDE), 7).save(encoded, "PNG")
    for number in range(COUNT):
        of_class = number % 2
        path = root / "pictures" / f"class{of_class}" / f"{number:04}.png"
        synset = f"n0000000{of_class}"
        same = root / "imagenet" / "train" / synset / f"{synset}_{number}.JPEG"
        for parent in (path.parent, same.parent):
            parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded.getvalue() + number.to_bytes(2, "big"))
        same.hardlink_to(path)
    write_published(root)
    return root


def write_published(root: Path) -> None:
    """Write CelebA and SVHN with as many images, which are larger than memory only in another shape."""
    faces = root / "celeba" / PICTURES
    faces.mkdir(parents=True)
    face = io.BytesIO()
    Image.new("RGB", (178, 218), "grey").save(face, "JPEG")
    partitions = []
    for number in range(COUNT):
        (faces / f"{number}.jpg").write_bytes(face.getvalue() + number.to_bytes(2, "big"))
        partitions.append(f"{number}.jpg {number % 2}\n")
    (root / "celeba" / PARTITIONS).write_text("".join(partitions))
    (root / "svhn").mkdir()
    for name, count in (("train", COUNT // 2), ("extra", COUNT // 4), ("test", COUNT // 4)):
        images = np.random.default_rng(count).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        labels = np.arange(count)[:, None] % 10 + 1
        savemat(root / "svhn" / f"{name}_32x32.mat", {"X": images, "y": labels}, do_compression=True)


@pytest.mark.parametrize(
    ("audit", "settings"),
    [
        ("unique_feature", FOLDER),
        ("membership", FOLDER),
        ("membership", ("data=folder:pictures#inverted10",)),
        ("membership", (f"data=celeba#{SIDE}x{SIDE}",)),
        ("density", (f"data=svhn-full#{SIDE}x{SIDE}",)),
        ("density", FOLDER),
        (
            "forgetting",
            (
                "query.data=folder:pictures",
                "calibration.data=folder:pictures",
                "calibration.first=300",
                "query.examples=100",
                "calibration.examples=100",
            ),
        ),
        ("deja_vu", ("data=imagenet:imagenet", "per_class=60", "public=100", "attack_images=50", "crop=corner")),
        ("relational", ()),
        ("text", ()),
    ],
)
def test_plan_stays_within_memory_and_processor_time(
    audit: str, settings: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    assert SIDE * SIDE * COUNT > 50 * LIMIT
    env = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    env |= {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", "ENGRAM_CACHE": str(folder / "cache")}
    env["ENGRAM_DATA"] = str(folder)
    command = [sys.executable, "-c", "from engram_command import main; main()", "plan", audit, "--preset", "quickstart"]
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [*command, *settings],
            cwd=folder,
            env=env,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (tmp_path / "output").read_text()
    assert usage.ru_utime + usage.ru_stime < SECONDS
    assert not list((folder / "cache").glob("*.pixels"))
