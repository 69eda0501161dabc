"""Small synthetic folders in the layout of ACDC."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.contract.extras import NIBABEL
from tasks.datasets import acdc, catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError

SHAPE = (20, 30, 3, 2)  # x, y, slices, frames
TABLE = "patient,tesla\npatient001,1.5\n2,3\n003,3.0\npatient101,1.5\npatient102,3\n"


def volume(number: int, shape: Sequence[int] = SHAPE) -> NDArray[np.int16]:
    return np.random.default_rng(number).integers(0, 1000, tuple(shape), dtype=np.int16)


def write_patient(split: Path, number: int, group: str, values: NDArray[Any], packed: bool = True) -> Path:
    """Write a patient's folder, with an extra file of one frame that must not be read."""
    folder = split / f"patient{number:03}"
    folder.mkdir(parents=True)
    (folder / "Info.cfg").write_text(f"ED: 1\nES: 12\nGroup: {group}\nHeight: 184.0\nNbFrame: 30\nWeight: 95.0\n")
    (folder / f"{folder.name}_frame01.nii.gz").write_bytes(b"")
    path = folder / f"{folder.name}_4d.nii{'.gz' if packed else ''}"
    nibabel.save(nibabel.Nifti1Image(values, np.diag([1.5, 1.5, 10, 1])), path)
    return path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Training patients 1 (1.5 T), 2 and 3 (3 T), testing patients 101 (1.5 T) and 102 (3 T)."""
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    folder = tmp_path / "acdc"
    for number, group in ((1, "DCM"), (2, "RV"), (3, "NOR")):
        write_patient(folder / "training", number, group, volume(number), packed=number != 3)
    for number, group in ((101, "HCM"), (102, "MINF")):
        write_patient(folder / "testing", number, group, volume(number, (5, 4, 2, 1)))
    (folder / "field_strengths.csv").write_text(TABLE)
    return tmp_path


def error_of(act: Any = pin, name: str = "acdc-3t") -> str:
    with pytest.raises(DatasetError) as caught:
        act(Dataset(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def expected_slices(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    """The slices of a volume in order, computed pixel by pixel."""
    width, height, slices, frames = values.shape
    low = float(np.percentile(values.ravel(), 1))
    high = float(np.percentile(values.ravel(), 99))
    out = np.zeros((frames * slices, 192, 192, 1), np.uint8)
    for index in np.ndindex(values.shape):
        x, y, z, t = index
        scaled = round(255 * min(max((float(values[index]) - low) / (high - low), 0), 1))
        row, column = y + (192 - height) // 2, x + (192 - width) // 2
        if 0 <= row < 192 and 0 <= column < 192:
            out[t * slices + z, row, column, 0] = scaled
    return out


def test_field_strength_selects_patients_slices_and_groups(root: Path) -> None:
    images = load(pin(Dataset("acdc-3t")))
    assert images.names == ("DCM", "HCM", "MINF", "NOR", "RV")
    assert images.classes == 5
    assert images.train_labels.tolist() == [4] * 6 + [3] * 6
    assert images.train_groups is not None
    assert images.train_groups.tolist() == [2] * 6 + [3] * 6
    assert images.test_labels.tolist() == [2, 2]
    assert (expected_slices(volume(2)) == images.train_images[:6]).all()
    assert (expected_slices(volume(3)) == images.train_images[6:]).all()
    assert (expected_slices(volume(102, (5, 4, 2, 1))) == images.test_images).all()
    weaker_field = load(pin(Dataset("acdc-1.5t")))
    assert weaker_field.train_labels.tolist() == [0] * 6
    assert weaker_field.test_labels.tolist() == [1, 1]


def test_images_of_another_size_keep_their_patients(root: Path) -> None:
    images = load(pin(Dataset("acdc-3t#64x48#rgb")))
    assert images.shape == (64, 48, 3)
    assert images.train_groups is not None
    assert images.train_groups.tolist() == [2] * 6 + [3] * 6


def test_slices_are_cropped_or_padded_to_square(root: Path) -> None:
    shutil.rmtree(root / "acdc" / "training" / "patient003")
    shutil.rmtree(root / "acdc" / "training" / "patient002")
    values = np.full((195, 190, 1, 1), 100, np.int16)
    values[0] = values[194] = values[193] = 900  # of 3 surplus columns, one is cut at the start and two at the end
    values[1, 5] = values[192, 6] = 200
    write_patient(root / "acdc" / "training", 2, "RV", values)
    image = load(pin(Dataset("acdc-3t"))).train_images[0, :, :, 0]
    low, high = np.percentile(values, (1, 99))
    expected = np.zeros((192, 192))
    expected[6, 0] = expected[7, 191] = round(255 * (200 - low) / (high - low))
    assert (expected == image).all()


def test_bright_voxels_do_not_darken_others(root: Path) -> None:
    path = root / "acdc" / "training" / "patient002" / "patient002_4d.nii.gz"
    values = np.arange(1000, dtype=np.int16).reshape(10, 10, 5, 2)
    values[0, 0, 0] = 30_000
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)
    slices = load(pin(Dataset("acdc-3t"))).train_images
    assert (expected_slices(values) == slices[:10]).all()
    assert 255 // 2 - 3 <= slices[0, 91, 91 + 5, 0] <= 255 // 2 + 3  # the value 500 in a range of 0 to 999


def test_header_scaling_makes_no_difference(root: Path) -> None:
    before = load(pin(Dataset("acdc-3t"))).train_images
    image = nibabel.Nifti1Image(volume(2), np.eye(4))
    image.header.set_slope_inter(0.5, 3)
    nibabel.save(image, root / "acdc" / "training" / "patient002" / "patient002_4d.nii.gz")
    after = load(pin(Dataset("acdc-3t"))).train_images
    assert np.abs(before.astype(int) - after).max() <= 1


def test_central_slices_are_tests_without_testing_patients(root: Path) -> None:
    with_testing = pin(Dataset("acdc-3t"))
    shutil.rmtree(root / "acdc" / "testing" / "patient102")
    pinned = pin(Dataset("acdc-3t"))
    images = load(pinned)
    assert (images.train_images[[1, 7]] == images.test_images).all()
    assert images.test_labels.tolist() == [4, 3]
    shutil.rmtree(root / "acdc" / "testing")
    assert pinned == pin(Dataset("acdc-3t")) != with_testing


@pytest.mark.parametrize("layout", ["ACDC", "ACDC/database", "acdc/database"])
def test_folder_and_table_are_found_as_unpacked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    before = pin(Dataset("acdc-3t")).digest
    copy = Path(shutil.copytree(root / "acdc", tmp_path / "copy" / layout))
    if copy.name == "database":
        (copy / "field_strengths.csv").rename(copy.parent / "field_strengths.csv")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "copy"))
    assert before == pin(Dataset("acdc-3t")).digest


def test_digest_covers_files_and_groups(root: Path) -> None:
    before = [pin(Dataset(name)).digest for name in ("acdc-3t", "acdc-1.5t")]
    assert len(set(before)) == 2
    info = root / "acdc" / "training" / "patient002" / "Info.cfg"
    info.write_text(info.read_text().replace("RV", "HCM"))
    regrouped = pin(Dataset("acdc-3t")).digest
    path = root / "acdc" / "training" / "patient002" / "patient002_4d.nii.gz"
    shutil.copyfile(root / "acdc" / "training" / "patient001" / "patient001_4d.nii.gz", path)
    assert len({before[0], regrouped, pin(Dataset("acdc-3t")).digest}) == 3
    assert before[1] == pin(Dataset("acdc-1.5t")).digest


def test_digest_is_recomputed_after_changes(root: Path) -> None:
    digests: dict[str, str] = {}
    pin(Dataset("acdc-3t"), digests)
    digests = dict.fromkeys(digests, "ab" * 32)
    assert pin(Dataset("acdc-3t"), digests).digest == "ab" * 32
    table = root / "acdc" / "field_strengths.csv"
    table.write_text(TABLE.replace("patient001,1.5", "patient001,3"))
    assert pin(Dataset("acdc-3t"), digests).digest != "ab" * 32


def test_missing_set_names_location_and_download(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    message = error_of()
    assert [part for part in (str(tmp_path / "ACDC" / "database"), acdc.CHALLENGE) if part not in message] == []


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            None,
            "does not exist; ACDC does not include field strengths: write this file with the columns patient and "
            "tesla, 1.5 or 3 for each patient",
        ),
        ("id,tesla\n1,3\n", "has the columns ['id', 'tesla']; expected patient and tesla"),
        ("patient,tesla\n1,1.5\n3,3\n", "lacks patient002 of "),
        (TABLE.replace("102", "103"), "lacks patient102 of "),
        ("patient,tesla\n1,7\n", "line 2 has '7' tesla; it must be 1.5 or 3"),
        ("patient,tesla\n1\n", "line 2 has 1 values; it must have 2"),
        ("patient,tesla\nJo,3\n", "line 2 has the patient 'Jo'; it must be like patient001 or 1"),
        (f"{TABLE}patient002,1.5\n", "line 7 has another field strength for patient 002"),
        (TABLE.replace(",3", ",1.5").replace(".0", ""), "has no patient of "),
    ],
)
def test_invalid_field_strength_table_is_refused(root: Path, table: str | None, expected: str) -> None:
    path = root / "acdc" / "field_strengths.csv"
    path.unlink() if table is None else path.write_text(table)
    message = error_of()
    assert expected in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (None, "Info.cfg does not exist; expected the patient's group in this file"),
        (b"ED: 1\n", "Info.cfg has no line 'Group: ...'; expected one of DCM, HCM, MINF, NOR, RV"),
        (b"Group: ARV\n", "Info.cfg has the group 'ARV'; it must be one of DCM, HCM, MINF, NOR, RV"),
        (b"Group: \xff\n", "Info.cfg is not text in UTF-8"),
    ],
)
def test_patient_without_known_group_is_refused(root: Path, info: bytes | None, expected: str) -> None:
    path = root / "acdc" / "training" / "patient002" / "Info.cfg"
    path.unlink() if info is None else path.write_bytes(info)
    assert f"patient002/{expected}" in error_of()


def test_missing_and_duplicate_files_are_refused(root: Path) -> None:
    folder = root / "acdc" / "training" / "patient002"
    shutil.copytree(folder, folder.with_name("patient2"))
    message = error_of()
    assert "are both of patient 2" in message
    assert str(folder) in message
    assert str(folder.with_name("patient2")) in message
    shutil.rmtree(folder.with_name("patient2"))
    (folder / "patient002_4d.nii.gz").unlink()
    assert "patient002_4d.nii.gz does not exist; expected one file of that name per patient" in error_of()


def volume_with_nan() -> NDArray[np.float32]:
    values = volume(2).astype(np.float32)
    values[1, 2, 0, 1] = np.nan
    return values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (volume(2, SHAPE[:3]), "is 20 x 30 x 3; expected four axes: x, y, slices and frames"),
        (volume_with_nan(), "contains values that are not finite; expected numbers only"),
        (np.full(SHAPE, 7, np.int16), "has the value 7 at its 1st and 99th percentile: no structure"),
        (volume(2).astype(np.complex64), "contains values of the type complex64; expected real numbers"),
    ],
)
def test_invalid_volumes_are_refused(root: Path, values: NDArray[Any], expected: str) -> None:
    path = root / "acdc" / "training" / "patient002" / "patient002_4d.nii.gz"
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)
    assert f"patient002_4d.nii.gz {expected}" in error_of(load)


@pytest.mark.parametrize("size", [0, 5, 40, 300, -5])
def test_damaged_files_are_refused(root: Path, size: int) -> None:
    path = root / "acdc" / "training" / "patient002" / "patient002_4d.nii.gz"
    path.write_bytes(path.read_bytes()[:size])
    assert "patient002_4d.nii.gz cannot be read as NIfTI: " in error_of(load)
    path.write_bytes(b"no volume at all" * 100)
    assert "patient002_4d.nii.gz cannot be read as NIfTI: " in error_of(load)


def test_oversized_header_is_refused_before_allocation(root: Path) -> None:
    path = root / "acdc" / "training" / "patient003" / "patient003_4d.nii"
    header = np.frombuffer(path.read_bytes(), np.uint8).copy()
    header[40:50].view("<i2")[:] = (4, 30_000, 30_000, 30_000, 30_000)
    path.write_bytes(header.tobytes())
    expected = "its header announces 30000 x 30000 x 30000 x 30000 values, more than the file contains"
    assert f"patient003_4d.nii cannot be read as NIfTI: {expected}" in error_of(load)


def test_missing_nibabel_names_its_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nibabel", None)
    assert error_of(load) == f"ACDC is read with a package that is not installed, {NIBABEL.advice}"


def test_every_prefix_has_proportional_groups(root: Path) -> None:
    for number in range(4, 14):
        write_patient(root / "acdc" / "training", number, "DCM" if number < 9 else "HCM", volume(number, (5, 4, 1, 1)))
    numbers = "".join(f"{number},1.5\n" for number in range(4, 14))
    (root / "acdc" / "field_strengths.csv").write_text(TABLE.replace("patient001,1.5", "1,3") + numbers)
    images = load(pin(Dataset("acdc-1.5t")))
    labels = images.train_labels.tolist()
    assert images.train_groups is not None
    assert sorted(images.train_groups.tolist()) == [*range(4, 14)]
    assert images.train_groups.tolist() != [*range(4, 14)]
    assert all(abs(labels[:first].count(0) - labels[:first].count(1)) <= 1 for first in range(11))
