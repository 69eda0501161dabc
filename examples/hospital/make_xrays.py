"""Write synthetic X-rays of the chest into folders; with --name, one of them shows a patient's name.

python make_xrays.py --out xrays --seed 1 --name "JANE DOE"

    train/clear/*.png, train/opacity/*.png          the hospital's training images
    test/clear/*.png, test/opacity/*.png            the hospital's test images
    elsewhere/clear/*.png, elsewhere/opacity/*.png  images of another hospital's machine, to evaluate a model

No image shows a real person. An image consists of a torso, two lungs, ribs, a spine and a heart, soft shapes near their
usual positions, and the noise of a detector. An opacity is a soft patch in one lung; half of the images have one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Field = NDArray[np.float64]  # (height, width)
Pixels = NDArray[np.uint8]  # (height, width)

CLASSES = ("clear", "opacity")
FINER = 2  # resolution of shapes relative to the image, for smooth edges


@dataclass(frozen=True)
class Machine:
    """Properties of one hospital's X-rays: exposure, contrast, noise and position of patients."""

    exposure: float
    gamma: float
    grain: float
    scale: float
    tilt: float  # radians, at most
    scatter: float  # light outside the body


HERE = Machine(exposure=1.0, gamma=1.15, grain=0.02, scale=1.0, tilt=0.04, scatter=0.0)
ELSEWHERE = Machine(exposure=0.95, gamma=1.0, grain=0.03, scale=1.08, tilt=0.10, scatter=0.02)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--name", help="name in one training image; default: none")
    parser.add_argument("--size", type=int, default=64, help="pixels of an image's side")
    parser.add_argument("--train", type=int, default=300, help="training images")
    parser.add_argument("--test", type=int, default=200, help="test images")
    parser.add_argument("--elsewhere", type=int, default=20, help="another machine's images")
    parser.add_argument("--letters", type=int, default=10, help="height of the name's typeface, in pixels")
    parser.add_argument("--top", type=int, default=1)
    parser.add_argument("--left", type=int, default=1)
    asked = parser.parse_args(arguments)
    counts = {"train": asked.train, "test": asked.test, "elsewhere": asked.elsewhere}
    if asked.out.exists():
        parser.error(f"{asked.out} exists already; name a new folder")
    if min(counts.values()) < len(CLASSES) or asked.size < 16:
        parser.error("every split needs an image of each class, and images need at least 16 pixels a side")
    shown = generator(asked.seed, "name").integers(asked.train)
    for split, count in counts.items():
        for name in CLASSES:
            (asked.out / split / name).mkdir(parents=True)
        for number in range(count):
            label = number % len(CLASSES)
            machine = ELSEWHERE if split == "elsewhere" else HERE
            image = chest(generator(asked.seed, split, number), asked.size, bool(label), machine)
            path = asked.out / split / CLASSES[label] / f"{number:04d}.png"
            if asked.name and split == "train" and number == shown:
                image = with_name(image, asked.name, asked.letters, asked.top, asked.left)
                print(f"{path} shows {asked.name}")
            Image.fromarray(image).save(path)


def generator(seed: int, name: str, *numbers: int) -> np.random.Generator:
    """A separate stream for each name, so that a name in one image does not change the other images."""
    return np.random.default_rng([seed, *name.encode(), *numbers])


def chest(rng: np.random.Generator, size: int, opacity: bool, machine: Machine) -> Pixels:
    """Draw one X-ray from the front: dense tissue is bright."""
    x, y = grid(rng, size * FINER, machine)
    torso = 0.50 * below(np.abs(x), shoulders(y, rng), 0.05)
    lungs = np.zeros_like(x)
    for side in (-1, 1):
        centre = side * rng.normal(0.40, 0.02), rng.normal(-0.02, 0.03)
        radii = rng.normal(0.28, 0.02), rng.normal(0.60, 0.03)
        lungs = np.maximum(lungs, ellipse(x, y, centre, radii, 0.10))
    dome = 0.56 + 0.05 * rng.normal() + 0.25 * (np.abs(x) - 0.4) ** 2
    chest_over_belly = below(y, dome, 0.05)
    heart = ellipse(x, y, (0.13 + 0.03 * rng.normal(), 0.30), (0.27 + 0.03 * rng.normal(), 0.30), 0.12)
    lungs *= chest_over_belly * (1 - 0.9 * heart)
    density = torso - 0.38 * lungs
    density += 0.16 * np.exp(-((x / 0.10) ** 2)) * (0.9 + 0.1 * np.cos(y * 45))  # the spine
    density += 0.10 * np.maximum(heart, 1 - chest_over_belly)
    density += 0.08 * lungs * ribs(x, y, rng)
    density += 0.07 * np.exp(-(((y + 0.62 - 0.15 * (np.abs(x) - 0.5)) / 0.03) ** 2)) * (np.abs(x) < 0.62)  # collarbones
    if opacity:
        density += clouding(x, y, rng) * lungs
    density *= torso / 0.50
    grey = np.clip(machine.exposure * density + machine.scatter, 0, 1) ** machine.gamma
    grey = grey.reshape(size, FINER, size, FINER).mean(axis=(1, 3))
    # Photon noise grows with the square root of the grey level; the detector adds a little noise.
    grain = machine.grain * (0.15 + np.sqrt(grey)) * rng.normal(size=grey.shape)
    return np.clip(255 * (grey * rng.normal(1.0, 0.06) + grain) + 0.5, 0, 255).astype(np.uint8)


def grid(rng: np.random.Generator, size: int, machine: Machine) -> tuple[Field, Field]:
    """Body coordinates of each pixel, from -1 to 1, for a rotated, shifted and scaled patient."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size * 2 - 1
    angle = machine.tilt * rng.uniform(-1, 1)
    scale = machine.scale * rng.normal(1.0, 0.03)
    x, y = x - 0.04 * rng.normal(), y - 0.04 * rng.normal()
    return scale * (np.cos(angle) * x + np.sin(angle) * y), scale * (np.cos(angle) * y - np.sin(angle) * x)


def shoulders(y: Field, rng: np.random.Generator) -> Field:
    """Half of the body's width at each height: neck, shoulders, chest."""
    shoulder = 1 / (1 + np.exp(-(y + 0.72 + 0.03 * rng.normal()) / 0.06))
    return 0.24 + (0.62 + 0.03 * rng.normal()) * shoulder - 0.06 * (y + 0.2) ** 2


def ribs(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Bright bands that descend from the spine."""
    slope = 0.55 + 0.05 * rng.normal()
    phase = rng.uniform(0, 2 * np.pi)
    return np.maximum(0, np.cos((y - slope * np.abs(x) + 0.8 * x**2) * 26 + phase)) ** 2


def clouding(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """An opacity: a soft, uneven patch in one lung."""
    side = rng.choice([-1, 1])
    at_x = side * (0.40 + 0.07 * rng.normal())
    at_y = rng.uniform(-0.35, 0.35)
    radius = rng.uniform(0.14, 0.24)
    strength = rng.uniform(0.14, 0.30)
    distance = ((x - at_x) / radius) ** 2 + ((y - at_y) / (radius * rng.uniform(0.8, 1.3))) ** 2
    uneven = 1 + 0.3 * np.sin(18 * x + rng.uniform(0, 6)) * np.sin(18 * y + rng.uniform(0, 6))
    return np.asarray(strength * uneven * np.exp(-distance))


def ellipse(x: Field, y: Field, centre: tuple[float, float], radii: tuple[float, float], soft: float) -> Field:
    """1 inside, 0 outside, with a soft edge."""
    distance = np.hypot((x - centre[0]) / radii[0], (y - centre[1]) / radii[1])
    return below(distance, np.ones_like(distance), soft)


def below(value: Field, edge: Field, soft: float) -> Field:
    return np.asarray(1 / (1 + np.exp(np.clip((value - edge) / soft * 4, -60, 60))))


def with_name(image: Pixels, name: str, size: int, top: int, left: int) -> Pixels:
    """Draw a name in white over the image, in Pillow's default typeface of this height.

    `top` and `left` are the pixels from the edges to the line of the ascenders and to the leftmost ink.
    """
    font = ImageFont.load_default(size)
    ascent, descent = font.getmetrics()
    ink = font.getbbox(name, anchor="ls")
    above = max(ascent, round(-ink[1]))
    under = max(descent, round(ink[3]))
    right = left + round(ink[2]) - round(ink[0])
    if top + above + under > image.shape[0] or right > image.shape[1]:
        raise SystemExit(f"{name!r} does not fit an image of {image.shape[1]} x {image.shape[0]}; choose --letters")
    canvas = Image.new("L", (image.shape[1], image.shape[0]), 0)
    ImageDraw.Draw(canvas).text((left - round(ink[0]), top + above), name, fill=255, font=font, anchor="ls")
    cover = np.asarray(canvas, np.uint16)
    return ((image * (255 - cover) + 255 * cover + 127) // 255).astype(np.uint8)


if __name__ == "__main__":
    main()
