"""Published sizes of standard data sets, for planning and pricing on a machine without their files.

Outlines have the shapes, counts and lengths of the data, but no content: images are blank and use no memory. Runs never
use them, and their digests differ from those of real data sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.boxed.pictures import NO_BOXES, Boxes
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Indices, Labels, Pixels
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.questions.question import Question, QuestionSet, Scorer
from tasks.datasets.source import digest_of

OUTLINE_RULE = "outline 1"


@dataclass(frozen=True)
class Outline:
    """The number of images in both splits, their height, width and channels, and the number of classes."""

    train: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    name: str = ""  # of sets whose sizes are those of another

    def digest(self) -> str:
        return digest_of(OUTLINE_RULE, [repr(self).encode()])

    def images(self) -> Images:
        """Return blank images with cyclic labels."""
        return Images(*self._split(self.train), *self._split(self.test), self.classes)

    def reshape(self, options: Options) -> Outline | None:
        """Return the outline of the images in another size or colour. None for any other option."""
        if replace(options, size=None, channels=None) != AS_THEY_ARE:
            return None
        height, width = options.size or self.shape[:2]
        return replace(self, shape=(height, width, options.channels or self.shape[2]))

    def _split(self, count: int) -> tuple[Pixels, Labels]:
        return np.broadcast_to(np.uint8(0), (count, *self.shape)), np.arange(count) % self.classes


OUTLINES: Mapping[str, Outline] = {
    "mnist": Outline(60_000, 10_000, (28, 28, 1), 10),
    "fashion-mnist": Outline(60_000, 10_000, (28, 28, 1), 10),
    "cifar10": Outline(50_000, 10_000, (32, 32, 3), 10),
    "svhn": Outline(73_257, 26_032, (32, 32, 3), 10),
    "svhn-full": Outline(604_388, 26_032, (32, 32, 3), 10),
    "celeba": Outline(162_770, 19_867, (32, 32, 3), 1),
    "purchase100": Outline(177_592, 19_732, (1, 600, 1), 100),
    "texas100": Outline(60_597, 6_733, (1, 6169, 1), 100),
    "acdc-3t": Outline(7_936, 50, (192, 192, 1), 5, "acdc-3t"),  # Liu & Tsaftaris 2020, section 4.2
    "acdc-1.5t": Outline(17_408, 50, (192, 192, 1), 5, "acdc-1.5t"),
}
ON_PHOTOS = Outline(60_000, 10_000, (28, 28, 1), 10, "mnist-on-photos")


@dataclass(frozen=True)
class BoxedOutline:
    """Boxed images: of each class, the training images, those with a box among them, and the validation images.

    The sides of an image and of its box are typical of the set.
    """

    classes: int
    train: int
    boxed: int
    validation: int
    size: tuple[int, int]  # height and width
    box: tuple[int, int, int, int]

    def digest(self) -> str:
        return digest_of(OUTLINE_RULE, [repr(self).encode()])

    def images(self) -> Images:
        raise DatasetError("the outline has boxed images of different sizes")


# Russakovsky et al. 2015, "ImageNet large scale visual recognition challenge", tables 2 and 4 and section 3.2.
BOXED_OUTLINES: Mapping[str, BoxedOutline] = {
    "imagenet": BoxedOutline(1000, 1281, 544, 50, (400, 480), (110, 100, 370, 340)),
}


@dataclass(frozen=True, eq=False)
class OutlinedPictures:
    """Blank boxed images with the sizes of an outline."""

    outline: BoxedOutline
    given_parts: tuple[str, ...] | None = None

    @property
    def digest(self) -> str:
        return self.outline.digest()

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"{row:08}" for row in range(len(self.boxes)))

    @cached_property
    def labels(self) -> Labels:
        return np.repeat(np.arange(self.outline.classes), self._per_class)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"class {number}" for number in range(self.outline.classes))

    @cached_property
    def boxes(self) -> Sequence[Boxes]:
        box: Boxes = np.array([self.outline.box], np.int32)
        unboxed = self._per_class - self.outline.boxed
        return ([box] * self.outline.boxed + [NO_BOXES] * unboxed) * self.outline.classes

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        return np.broadcast_to(np.array(self.outline.size, np.int32), (len(self.boxes), 2))

    @cached_property
    def is_validation(self) -> NDArray[np.bool_]:
        within = np.arange(len(self.boxes)) % self._per_class
        is_validation: NDArray[np.bool_] = within >= self.outline.train
        return is_validation

    @cached_property
    def first_copies(self) -> NDArray[np.int64]:
        return np.arange(len(self.boxes))

    def picture(self, row: int) -> Pixels:  # noqa: ARG002
        return np.zeros((*self.outline.size, 3), np.uint8)

    def squares(self, rows: Indices, side: int) -> Pixels:
        return np.broadcast_to(np.uint8(0), (len(rows), side, side, 3))

    @property
    def _per_class(self) -> int:
        return self.outline.train + self.outline.validation


@dataclass(frozen=True)
class QuestionOutline:
    """The number of questions and contexts in both parts, and the mean characters of a context and a question."""

    scorer: Scorer
    questions: tuple[int, int]
    contexts: tuple[int, int]
    context_length: int
    question_length: int

    def digest(self) -> str:
        return digest_of(OUTLINE_RULE, [repr(self).encode()])

    def images(self) -> Images:
        raise DatasetError("the outline has questions, not images")

    def read_questions(self) -> QuestionSet:
        """Return questions of these lengths, whose answers are distinct numbers."""
        parts = []
        for name, questions, contexts in zip(("train", "validation"), self.questions, self.contexts, strict=True):
            parts.append([self._question(name, number, number % contexts) for number in range(questions)])
        return QuestionSet(parts[0], parts[1], self.scorer)

    def _question(self, part: str, number: int, context: int) -> Question:
        text = "words " * (self.context_length // 6)
        question = "word " * (self.question_length // 5)
        context_id = f"{part} {context}"
        return Question(f"{part} {number}", context_id, f"{context_id} {text}", question, ((f"{number} answers",),))


# Rajpurkar et al. 2016, "SQuAD: 100,000+ questions for machine comprehension of text", section 4 (contexts are
# paragraphs, at least 500 characters); Dua et al. 2019, "DROP", table 2.
QUESTION_OUTLINES: Mapping[str, QuestionOutline] = {
    "squad": QuestionOutline("squad", (87_599, 10_570), (18_896, 2_067), 750, 60),
    "drop": QuestionOutline("drop", (77_409, 9_536), (5_565, 582), 1_200, 60),
}
