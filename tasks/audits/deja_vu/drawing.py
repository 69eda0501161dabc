"""Which pictures are reconstructed, from how many neighbours, and who says what a drawing shows."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.diffusion.pixel_classifier import PixelClassifier
from tasks.ranges import at_least


@dataclass(frozen=True)
class Drawing:
    """Of each set `pictures` pictures, drawn by chance among those with a crop (0: all), are reconstructed.

    A drawing is of the mean backbone embedding of the `neighbours` public pictures nearest to the crop, in `steps`
    steps. The diffusion model trains in links of `link` epochs (0: one job). `classifier` says what a drawing shows.

    Meehan et al. 2023, appendix A.2.4: 5 neighbours; 100 steps are those of the released code of Bordes et al. 2022.
    """

    pictures: int = 500
    neighbours: int = 5
    steps: int = 100
    link: int = 10
    classifier: PixelClassifier = PixelClassifier()

    def __post_init__(self) -> None:
        at_least(self, {"pictures": 0, "neighbours": 1, "steps": 1, "link": 0})
