"""The texts of a drawing and their extents in DejaVu Sans, which is wider than most readers' fonts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from xml.etree import ElementTree

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from dashboards.chart import Figure

NUMBER = r"-?[\d.]+"
STYLE = re.compile(r"([\w-]+): ([^;]+)")
SHARES = {"start": 0.0, "middle": 0.5, "end": 1.0}  # share of a text's width before its position


@dataclass(frozen=True)
class Label:
    """A text, its letter size and the ends of its base line, in the drawing's units."""

    text: str
    size: float
    ends: tuple[tuple[float, float], tuple[float, float]]


def labels(svg: str) -> Iterator[Label]:
    for element in ElementTree.fromstring(svg).iter():
        if element.tag.endswith("}text") and element.text:
            look = dict(STYLE.findall(element.get("style", "")))
            yield label(element.text, look, dict(element.attrib))


def label(text: str, look: dict[str, str], attributes: dict[str, str]) -> Label:
    transform = attributes.get("transform", "")
    moved = re.search(rf"translate\(({NUMBER}) ({NUMBER})\)", transform)
    x, y = moved.groups() if moved else (attributes["x"], attributes["y"])
    turned = re.search(rf"rotate\(({NUMBER})", transform)
    angle = math.radians(float(turned[1])) if turned else 0.0
    size = float(look["font-size"].removesuffix("px"))
    length = size * width(text, look.get("font-weight", "normal"))
    before = -SHARES[look.get("text-anchor", "start")] * length
    ends = tuple(
        (float(x) + along * math.cos(angle), float(y) + along * math.sin(angle)) for along in (before, before + length)
    )
    return Label(text, size, (ends[0], ends[1]))


@cache
def width(text: str, weight: str) -> float:
    """The width of a text with letters of size 1, cached because figures repeat texts."""
    font = FontProperties(family="DejaVu Sans", weight=weight)
    return float(TextPath((0, 0), text, size=1, prop=font).get_extents().width)


def words(figure: Figure) -> list[str]:
    """The texts inside a drawing."""
    return re.findall(r">([^<>]+)</text>", figure.svg)


def cut(svg: str) -> list[str]:
    """The texts that extend beyond the drawing's box."""
    right, bottom = size(svg)
    result = []
    for item in labels(svg):
        if not all(-1 <= x <= right + 1 and 0 <= y <= bottom + 1 for x, y in item.ends):
            result.append(item.text)
    return result


def size(svg: str) -> tuple[float, float]:
    """The width and height of the drawing in points."""
    box = re.search(rf'viewBox="0 0 ({NUMBER}) ({NUMBER})"', svg)
    assert box is not None
    return float(box[1]), float(box[2])
