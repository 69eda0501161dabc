"""ACDC's short-axis cine MRI, slice by slice, as two data sets: scans at 3 T and scans at 1.5 T.

FOLDER/training/patient001/Info.cfg                  lines such as `Group: DCM`; the others are not read
FOLDER/training/patient001/patient001_4d.nii.gz      (x, y, slices, frames), or the same as .nii
FOLDER/testing/patient101/...                        the same; optional
FOLDER/field_strengths.csv                           columns patient and tesla: `patient001,1.5` or `1,1.5`, then 3

ACDC does not publish the field strength of each examination, so the user writes the table, which must name every
patient. If FOLDER is called `database`, as in ACDC's archive, the table may be next to it. The challenge's other files,
one for each annotated frame, are not read.

Training images are all slices of all frames of the training patients scanned at that field strength, ordered by
patient, frame and slice. Patients are shuffled so that every prefix of the order is balanced across groups
(`tasks.datasets.row_order`), because patients of one group have consecutive numbers. Liu & Tsaftaris 2020, section 4.2,
count 7,936 images at 3 T and 17,408 at 1.5 T, both multiples of 256, so the actual numbers may be slightly higher. The
images of one patient stay together (`train_groups` is the patient number), and their label is the patient's group. The
test split contains the testing patients scanned at that field strength. If there are none, it contains one image per
training patient: the central slice (index slices // 2) of the first frame. Models are also trained on these images, so
the loss on them says nothing about new patients.

Pixels. Units are arbitrary and differ between patients, so every volume is scaled separately: its 1st percentile, over
all slices and frames, becomes 0 and its 99th 255, linearly, and values outside are clipped. Scaling by the minimum and
maximum would leave the heart with a fraction of the 256 values, because a few voxels of flowing blood or of fat near
the coil are several times brighter than the rest.

Sides. Slices of different patients differ in size. Each is cropped or padded with 0 to SIDE x SIDE around its centre,
without resizing. Training then takes the published crops of 128 x 128.

Orientation. A row of an image is a y of the file and a column an x, both ascending. The header's affine is not applied:
slices are shown as acquired.

Reading a thousand images takes 2 seconds of one core, and hashing them a third of a second. Each reading thread uses
about 120 MB of memory in addition to the images.

Bernard et al. 2018, "Deep learning techniques for automatic MRI cardiac multi-structures segmentation and diagnosis".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract.extras import NIBABEL
from tasks.datasets.dataset import DatasetError, file_bytes, file_sha256, unreadable
from tasks.datasets.images import Images, Labels, Pixels
from tasks.datasets.pictures import map_in_threads
from tasks.datasets.row_order import draw_class_order
from tasks.datasets.source import Source, digest_of
from tasks.worker.delimited_text import DelimitedTextError, read_delimited
from tasks.worker.size_limits import gunzip

RULE = "acdc 2"
TRAINING = "training"
TESTING = "testing"
TABLE = "field_strengths.csv"
INFO = "Info.cfg"
GROUPS = ("DCM", "HCM", "MINF", "NOR", "RV")
PATIENT = re.compile(r"patient(\d+)")
SIDE = 192
# percentiles within a volume
DARKEST = 1
BRIGHTEST = 99
DEFLATED = 1032  # largest ratio of unpacked to packed bytes: zlib, "Maximum compression factor"
CHALLENGE = "https://www.creatis.insa-lyon.fr/Challenge/acdc/"

Tesla = Literal["1.5", "3"]
STRENGTHS: Mapping[float, Tesla] = {1.5: "1.5", 3.0: "3"}


@dataclass(frozen=True)
class Patient:
    """A patient's number, group index, and the file that contains all frames."""

    number: int
    label: int
    path: Path


@dataclass(frozen=True)
class AcdcContent:
    """The patients scanned at one field strength.

    Their volumes are read on demand because they take gigabytes of memory.
    """

    training: tuple[Patient, ...]
    testing: tuple[Patient, ...]  # if empty, the test split is one central slice per training patient

    def digest(self) -> str:
        """Return the digest of the file bytes, in image order, and of the patient numbers and groups.

        Paths are not included, and no file is decoded.
        """
        return digest_of_patients(self, hash_patients(self.training), hash_patients(self.testing))

    def images(self) -> Images:
        images, labels, numbers = read_slices(self.training)
        if self.testing:
            test = read_slices(self.testing)[:2]
        else:
            test = central_slices(self.training, images, numbers)
        return Images(images, labels, *test, len(GROUPS), GROUPS, numbers)


def hash_patients(patients: Sequence[Patient]) -> list[str]:
    """Return the SHA-256 of each patient's file."""
    return list(map_in_threads(file_sha256, [patient.path for patient in patients]))


def digest_of_patients(content: AcdcContent, training: Sequence[str], testing: Sequence[str]) -> str:
    """Return the digest of patients whose files have these hashes."""
    splits = []
    for patients, hashes in ((content.training, training), (content.testing, testing)):
        rows = zip(patients, hashes, strict=True)
        splits.append([(patient.number, GROUPS[patient.label], sha) for patient, sha in rows])
    return digest_of(RULE, [json.dumps(splits).encode()])


def source(folder: Path, tesla: Tesla) -> Source | None:
    """Return the folder's patients scanned at this field strength, or None if it has no training patients at all.

    No volume is read. Raises DatasetError, naming the file, if a file is missing or malformed.
    """
    if not (folder / TRAINING).is_dir():
        return None
    table = strength_table(folder)
    strengths = field_strengths(table)
    training = _draw_patient_order(list(patients(folder / TRAINING, strengths, table, tesla)), TRAINING)
    testing = _draw_patient_order(list(patients(folder / TESTING, strengths, table, tesla)), TESTING)
    if not training:
        raise DatasetError(f"{table} has no patient of {folder / TRAINING} at {tesla} T; expected at least one")
    content = AcdcContent(training, testing)
    files = (file for patient in (*training, *testing) for file in (patient.path.with_name(INFO), patient.path))
    return Source(f"{RULE} {tesla} T", (table, *files), lambda: content)


def _draw_patient_order(patients: Sequence[Patient], split: str) -> tuple[Patient, ...]:
    """Shuffle the patients of a split so that every prefix of the order is balanced across groups."""
    order = draw_class_order([patient.label for patient in patients], "acdc", split)
    return tuple(patients[position] for position in order)


def strength_table(folder: Path) -> Path:
    """Return the path of the field-strength table."""
    parent_table = folder.parent / TABLE
    if folder.name == "database" and parent_table.is_file():
        return parent_table
    return folder / TABLE


def field_strengths(table: Path) -> dict[int, Tesla]:
    """Map each patient number in the table to its field strength."""
    if not table.is_file():
        raise DatasetError(
            f"{table} does not exist; ACDC does not include field strengths: write this file with the columns patient "
            "and tesla, 1.5 or 3 for each patient"
        )
    strengths: dict[int, Tesla] = {}
    try:
        text = read_delimited(file_bytes(table), ("patient", "tesla"))
        if not {"patient", "tesla"} <= set(text.header):
            raise DatasetError(f"{table} has the columns {list(text.header)}; expected patient and tesla")
        for line, cells in text.rows():
            number, tesla = parse_strength(dict(zip(text.header, cells, strict=True)), f"{table}, line {line}")
            if strengths.setdefault(number, tesla) != tesla:
                raise DatasetError(f"{table}, line {line} has another field strength for patient {number:03}")
    except DelimitedTextError as error:
        raise DatasetError(error.describe(table)) from None
    return strengths


def parse_strength(row: Mapping[str, str], where: str) -> tuple[int, Tesla]:
    """Return the patient number and field strength in a row."""
    patient = row["patient"]
    tesla = row["tesla"]
    match = re.fullmatch(r"(?:patient)?(\d+)", patient)
    if match is None:
        raise DatasetError(f"{where} has the patient {patient!r}; it must be like patient001 or 1")
    try:
        return int(match[1]), STRENGTHS[float(tesla)]
    except (KeyError, ValueError):
        raise DatasetError(f"{where} has {tesla!r} tesla; it must be 1.5 or 3") from None


def patients(split: Path, strengths: Mapping[int, Tesla], table: Path, tesla: Tesla) -> Iterator[Patient]:
    """Yield the split's patients scanned at this field strength, in order of their numbers.

    Raises DatasetError if the table lacks a patient.
    """
    for number, folder in patient_folders(split):
        if number not in strengths:
            raise DatasetError(f"{table} lacks {folder.name} of {split}; add its field strength, 1.5 or 3")
        if strengths[number] == tesla:
            yield _read_patient(folder, number)


def patient_folders(split: Path) -> Iterator[tuple[int, Path]]:
    """Yield patient numbers and folders, ascending by number. Yields nothing if the split does not exist."""
    if not split.is_dir():
        return
    folder_of: dict[int, Path] = {}
    for path in sorted(split.iterdir()):
        name = PATIENT.fullmatch(path.name)
        if name and path.is_dir() and folder_of.setdefault(int(name[1]), path) != path:
            raise DatasetError(f"{path} and {folder_of[int(name[1])]} are both of patient {int(name[1])}")
    yield from sorted(folder_of.items())


def _read_patient(folder: Path, number: int) -> Patient:
    """Read the patient in this folder. Raises DatasetError if a file is missing."""
    label = read_group(folder / INFO)
    packed = folder / f"{folder.name}_4d.nii.gz"
    path = packed if packed.is_file() else packed.with_suffix("")
    if not path.is_file():
        raise DatasetError(f"{packed} does not exist; expected one file of that name per patient, with all frames")
    return Patient(number, label, path)


def read_group(info: Path) -> int:
    """Return the index of the patient's group, read from the Info.cfg file."""
    try:
        lines = info.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise DatasetError(f"{info} does not exist; expected the patient's group in this file") from None
    except OSError as error:
        raise unreadable(info, error) from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{info} is not text in UTF-8: {error}") from None
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if "Group" not in fields:
        raise DatasetError(f"{info} has no line 'Group: ...'; expected one of {', '.join(GROUPS)}")
    if fields["Group"] not in GROUPS:
        raise DatasetError(f"{info} has the group {fields['Group']!r}; it must be one of {', '.join(GROUPS)}")
    return GROUPS.index(fields["Group"])


def read_slices(patients: Sequence[Patient]) -> tuple[Pixels, Labels, NDArray[np.int64]]:
    """Return all slices of all frames (n, SIDE, SIDE, 1), with the group index and patient number of each slice.

    Only a few volumes are in memory at a time.
    """
    opened = [open_volume(patient.path) for patient in patients]
    counts = [volume.shape[2] * volume.shape[3] for volume in opened]
    out = np.empty((sum(counts), SIDE, SIDE, 1), np.uint8)
    parts = np.split(out, np.cumsum(counts)[:-1])
    for _ in map_in_threads(lambda volume: write_slices(*volume), list(zip(patients, opened, parts, strict=True))):
        pass
    labels = np.repeat(np.array([patient.label for patient in patients], np.int64), counts)
    numbers = np.repeat(np.array([patient.number for patient in patients], np.int64), counts)
    return out, labels, numbers


def central_slices(patients: Sequence[Patient], images: Pixels, numbers: NDArray[np.int64]) -> tuple[Pixels, Labels]:
    """Return the central slice of each patient's first frame, and the patient's group index."""
    first = np.array([np.flatnonzero(numbers == patient.number)[0] for patient in patients])
    middle = [open_volume(patient.path).shape[2] // 2 for patient in patients]
    return images[first + middle], np.array([patient.label for patient in patients], np.int64)


def open_volume(path: Path) -> Any:
    """Open a file with nibabel without reading its voxels. Raises DatasetError unless it has four axes."""
    try:
        import nibabel
    except ImportError:
        raise DatasetError(f"ACDC is read with a package that is not installed, {NIBABEL.advice}") from None
    try:
        opened = nibabel.load(path)
    except Exception as error:  # gzip, zlib and nibabel raise different errors for broken bytes
        raise _broken_volume(path, error) from None
    if len(opened.shape) != 4 or 0 in opened.shape:
        shape = " x ".join(map(str, opened.shape))
        raise DatasetError(f"{path} is {shape}; expected four axes: x, y, slices and frames")
    # The header determines how much memory is allocated, and a damaged header may announce terabytes.
    size_limit = path.stat().st_size * (DEFLATED if path.suffix == ".gz" else 1)
    if math.prod(opened.shape) * opened.get_data_dtype().itemsize > size_limit:
        shape = " x ".join(map(str, opened.shape))
        raise _broken_volume(path, ValueError(f"its header announces {shape} values, more than the file contains"))
    return opened


def _broken_volume(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path} cannot be read as NIfTI: {' '.join(str(error).split()) or type(error).__name__}")


def write_slices(patient: Patient, opened: Any, out: Pixels) -> None:
    """Write a volume's slices, rescaled and cropped or padded, to `out` (frames * slices, SIDE, SIDE, 1)."""
    try:
        # Unpack the whole file, since nibabel stops reading before it reaches the checksum.
        if patient.path.suffix == ".gz":
            opened = type(opened).from_bytes(gunzip(patient.path.read_bytes()))
        values = np.asanyarray(opened.dataobj)
    except Exception as error:
        raise _broken_volume(patient.path, error) from None
    if values.dtype.kind not in "iuf":
        raise DatasetError(f"{patient.path} contains values of the type {values.dtype}; expected real numbers")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DatasetError(f"{patient.path} contains values that are not finite; expected numbers only")
    low, high = np.percentile(values, (DARKEST, BRIGHTEST))
    if not high > low:
        raise DatasetError(
            f"{patient.path} has the value {low:g} at its {DARKEST}st and {BRIGHTEST}th percentile: no structure"
        )
    out[:] = 0
    (from_x, to_x), (from_y, to_y) = (_centre_slices(length) for length in values.shape[:2])
    frames = out.reshape(values.shape[3], values.shape[2], SIDE, SIDE)
    for frame, target in enumerate(frames):  # one at a time, since floats take more memory
        frame_values = values[from_x, from_y, :, frame].astype(np.float64)
        target[:, to_y, to_x] = np.rint(np.clip((frame_values - low) * (255 / (high - low)), 0, 255)).T


def _centre_slices(length: int) -> tuple[slice, slice]:
    """Return which part of `length` pixels is kept and where it goes in SIDE.

    If the margin is odd, the larger half is at the end.
    """
    overlap = min(length, SIDE)
    source_start = (length - overlap) // 2
    target_start = (SIDE - overlap) // 2
    return slice(source_start, source_start + overlap), slice(target_start, target_start + overlap)
