"""The paper's numbers: Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEVEL = 0.05  # at which the paper calls a test significant

Top = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class PublishedNumbers:
    """What the paper prints of one cell, a data set with a network and its regularisers."""

    m_w: Top = ()  # Table 1: M_w, Average(P(y|x_u)), Average(P(y|x_r)) by rank of M_w
    m: tuple[float, ...] = ()  # Table 2: the largest M
    m_where_positive: float | None = None  # Tables 2 and 3: mean M over the canaries with M > 0
    correlation: float | None = None  # section 3.3: of self-influence and M
    accuracy: float | None = None  # section 3.1.2: on the validation split
    # Section 3.3: of the images with the highest and the lowest self-influence, (without, with) the feature. Their
    # size fits sums of squared slopes without the learning rate.
    highest: tuple[float, float] | None = None
    lowest: tuple[float, float] | None = None


PLAIN = "no regulariser"
DROPOUT, AUGMENTATION, BOTH, BATCH_NORM = "dropout", "augmentation", "dropout and augmentation", "batch norm"
REGULARISERS = (DROPOUT, AUGMENTATION, BOTH, BATCH_NORM)

PUBLISHED: Mapping[tuple[str, str, str, str], PublishedNumbers] = {
    ("table 1", "mnist", "mlp1", PLAIN): PublishedNumbers(
        m_w=((0.11, 0.50, 0.44), (0.11, 0.52, 0.46), (0.11, 0.48, 0.43), (0.10, 0.42, 0.38), (0.10, 0.41, 0.37))
    ),
    ("table 1", "cifar10", "cnn2", PLAIN): PublishedNumbers(
        m_w=((0.09, 0.72, 0.66), (0.09, 0.58, 0.53), (0.09, 0.64, 0.59), (0.09, 0.61, 0.56), (0.08, 0.53, 0.49)),
        accuracy=0.72,
    ),
    ("table 2", "mnist", "mlp1", PLAIN): PublishedNumbers(
        m=(0.0038, 0.0021, 0.0017),
        m_where_positive=0.0013,
        correlation=0.43,
        highest=(6.6e4, 7.5e4),
        lowest=(1.0e-13, 7.5e4),
    ),
    ("table 2", "fashion-mnist", "mlp1", PLAIN): PublishedNumbers(m=(0.03, 0.021, 0.019), m_where_positive=0.0093),
    ("table 2", "mnist", "cnn1", PLAIN): PublishedNumbers(m=(0.073, 0.035, 0.021), m_where_positive=0.012),
    ("table 2", "fashion-mnist", "cnn1", PLAIN): PublishedNumbers(m=(0.085, 0.068, 0.059), m_where_positive=0.028),
    ("table 2", "cifar10", "cnn2", PLAIN): PublishedNumbers(
        m=(0.058, 0.023, 0.018), m_where_positive=0.018, accuracy=0.72
    ),
    # The mean of just these three: the paper scored no more.
    ("table 2", "cifar10", "densenet100", PLAIN): PublishedNumbers(
        m=(0.72, 0.25, 0.18), m_where_positive=0.38, accuracy=0.92
    ),
    ("table 3", "mnist", "mlp1", DROPOUT): PublishedNumbers(m_where_positive=0.02),
    ("table 3", "mnist", "mlp1", AUGMENTATION): PublishedNumbers(m_where_positive=0.0033),
    ("table 3", "mnist", "mlp1", BOTH): PublishedNumbers(m_where_positive=0.0013),
    ("table 3", "mnist", "mlp1", BATCH_NORM): PublishedNumbers(m_where_positive=0.039),
    ("table 3", "fashion-mnist", "mlp1", DROPOUT): PublishedNumbers(m_where_positive=0.025),
    ("table 3", "fashion-mnist", "mlp1", AUGMENTATION): PublishedNumbers(m_where_positive=0.0065),
    ("table 3", "fashion-mnist", "mlp1", BOTH): PublishedNumbers(m_where_positive=0.029),
    ("table 3", "fashion-mnist", "mlp1", BATCH_NORM): PublishedNumbers(m_where_positive=0.00097),
    ("table 3", "cifar10", "cnn2", DROPOUT): PublishedNumbers(m_where_positive=0.38),
    ("table 3", "cifar10", "cnn2", AUGMENTATION): PublishedNumbers(m_where_positive=0.13),
    ("table 3", "cifar10", "cnn2", BOTH): PublishedNumbers(m_where_positive=0.44),
    ("table 3", "cifar10", "cnn2", BATCH_NORM): PublishedNumbers(m_where_positive=1.7),
}


@dataclass(frozen=True)
class PublishedCell:
    """The printed cell that a run repeats, by its name; empty where it repeats none."""

    cell: str = ""

    @property
    def numbers(self) -> PublishedNumbers:
        return published_numbers(self.cell)


def published_numbers(cell: str) -> PublishedNumbers:
    """The numbers of a cell by its name, such as `table 2, mnist, mlp1, no regulariser`; none of an unknown one."""
    return next((printed for names, printed in PUBLISHED.items() if cell_name(*names) == cell), PublishedNumbers())


def cell_name(*parts: str) -> str:
    return ", ".join(parts)
