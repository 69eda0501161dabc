"""Annotations of boxes: all objects, scaled to the image, and read without entities."""

from __future__ import annotations

from pathlib import Path
from xml.parsers import expat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.datasets.boxed.annotation import LARGEST, Refused, only_name, parse_annotation, read
from tasks.datasets.dataset import DatasetError
from tests.tasks.datasets.boxed.trees import xml


def test_boxes_include_their_last_pixel() -> None:
    annotation = parse_annotation(xml("n01440764", [[0, 5, 9, 14], [20, 3, 20, 3]], (40, 50)).encode())
    assert annotation.names == ("n01440764",) * 2
    assert annotation.size == (40, 50)
    assert annotation.boxes(40, 50).tolist() == [[0, 5, 10, 15], [20, 3, 21, 4]]


def test_boxes_of_another_size_are_scaled_outwards() -> None:
    annotation = parse_annotation(xml("n01440764", [[10, 10, 19, 20]], (40, 50)).encode())
    assert annotation.boxes(20, 25).tolist() == [[5, 5, 10, 11]]
    assert annotation.boxes(80, 150).tolist() == [[30, 20, 60, 42]]


def test_corners_have_any_order_and_size_is_optional() -> None:
    annotation = parse_annotation(xml("n01440764", [[19, 30, 10, 5]], (0, 0)).encode())
    assert annotation.size is None
    assert annotation.boxes(8, 8).tolist() == [[10, 5, 20, 31]]
    assert parse_annotation(b"<annotation/>").boxes(8, 8).shape == (0, 4)


def test_parts_of_an_object_are_ignored() -> None:
    inner = b"<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    content = xml("n1", [[1, 2, 3, 4]], (9, 9)).encode().replace(b"<pose>", inner + b"<pose>")
    assert parse_annotation(content).boxes(9, 9).tolist() == [[1, 2, 4, 5]]
    assert parse_annotation(content).names == ("n1",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<xmin>1</xmin>", "", "its object 1 has no xmin"),
        ("<ymax>4</ymax>", "<ymax>four</ymax>", "ymax of its object 1 is 'four'; it must be a number"),
        ("<ymax>4</ymax>", "<ymax>nan</ymax>", "ymax of its object 1 is 'nan'; it must be pixels of a picture"),
        ("<width>9</width>", "", "its size has no width"),
        ("<annotation>", "<!DOCTYPE annotation><annotation>", "it declares a document type"),
        ("<annotation>", "<annotation>" + "<part>" * 16, "its elements are nested more than 16 deep"),
        ("<annotation>", "<annotation>" + " " * LARGEST, "it has more than 1048576 bytes"),
    ],
)
def test_invalid_annotations_are_refused(old: str, new: str, message: str) -> None:
    text = xml("n1", [[1, 2, 3, 4]], (9, 9))
    with pytest.raises(Refused, match=message):
        parse_annotation(text.replace(old, new, 1).encode())


@given(st.data())
def test_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(xml("n1", [[1, 2, 3, 4]], (9, 9)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(content) - 1))
        content[index : index + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        boxes = parse_annotation(bytes(content)).boxes(9, 9)
    except (Refused, expat.ExpatError):
        return
    assert boxes.dtype == np.int32
    assert boxes.shape[1] == 4


@pytest.mark.parametrize("encoding", ["foo", "shift_jis", "utf-7"])
def test_encodings_that_cannot_be_read_are_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?><annotation/>'.encode())
    with pytest.raises(DatasetError, match=r"a\.xml is not an annotation of boxes: .+"):
        read(path)


def test_entities_are_never_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    secret = tmp_path / "secret"
    secret.write_text("5")
    path.write_text(f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret.as_uri()}">]><annotation>&x;</annotation>', "utf-16")
    with pytest.raises(DatasetError, match=r"a\.xml is not an annotation of boxes: it declares a document type"):
        read(path)
    with pytest.raises(expat.ExpatError):
        parse_annotation(b"<annotation>&x;</annotation>")
    with pytest.raises(DatasetError, match=r"b\.xml cannot be read: No such file"):
        read(tmp_path / "b.xml")


def test_class_of_all_objects_must_be_unique() -> None:
    annotation = parse_annotation(
        xml("n1", [[1, 2, 3, 4], [5, 6, 7, 8]], (9, 9)).replace("n1</name>", "n2</name>", 1).encode()
    )
    assert annotation.names == ("n2", "n1")
    assert only_name(annotation, ("n1", "n3"), Path("a.xml")) == "n1"
    assert only_name(parse_annotation(xml("n2", [[1, 2, 3, 4]], (9, 9)).encode()), ("n1",), Path("a.xml")) == "n2"
    with pytest.raises(DatasetError, match=r"a\.xml has objects of n1, n2; they must be of one class"):
        only_name(annotation, ("n1", "n2"), Path("a.xml"))
    with pytest.raises(DatasetError, match=r"a\.xml has objects of no class; they must be of one class"):
        only_name(parse_annotation(b"<annotation/>"), ("n1",), Path("a.xml"))
