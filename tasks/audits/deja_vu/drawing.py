"""Which pictures are reconstructed, from how many neighbours, and who says what a drawing shows."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.diffusion.pixel_classifier import PixelClassifier
from tasks.ranges import check_minimums


@dataclass(frozen=True)
class Drawing:
    """Which pictures are reconstructed, and who says what a drawing shows.

    Meehan et al. 2023, appendix A.2.4: 5 neighbours; 100 steps are those of the released code of Bordes et al. 2022.
    """

    pictures: int = 500
    """Pictures of each set that are reconstructed, drawn by chance among those with a crop; 0: all."""
    neighbours: int = 5
    """Public pictures nearest to the crop whose mean backbone embedding is drawn."""
    steps: int = 100
    """Steps of a drawing."""
    link: int = 10
    """Epochs per link of the diffusion model's training; 0: one job."""
    classifier: PixelClassifier = PixelClassifier()
    """The classifier that says what a drawing shows."""

    def __post_init__(self) -> None:
        check_minimums(self, {"pictures": 0, "neighbours": 1, "steps": 1, "link": 0})
