"""The interface of objectives that learn a density: training, log p of images, and samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from tasks.datasets.images import Images
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.models.importance import Estimated, Sampling
from tasks.models.vae import Vae, celeba, cifar10, mnist
from tasks.training.custom_density import CustomDensity
from tasks.training.elbo import Elbo
from tasks.training.objective import Objective
from tasks.training.outlier_mixture import OutlierMixture

WIDE: Mapping[str, Callable[[tuple[int, int, int], float], Vae]] = {"vae": mnist}  # these come in any width
OURS: Mapping[str, Callable[[tuple[int, int, int]], Vae]] = {
    "vae": mnist,
    "conv-vae": cifar10,
    "conv-vae-one-scale": celeba,
}


class DensityObjective(Objective, Protocol):
    """An objective that learns a density. Tensors are (models, *shape) by the names of `weights`."""

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """The log density of every image's bytes under every model, (models, n) float64, in nats; and how many samples
        each is effectively from, where it is by importance sampling.

        `pixels` are (n, height * width * channels) uint8. `rows` (n,) int64 are the images' numbers in their data set
        and `members` (models,) int64 the models' keys: both name streams of draws.
        """

    def check_drawn(self) -> None:
        """Raise ValueError, in one line, where the model only has densities and cannot draw images."""

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Images drawn from the models, in [0, 1]: (models, count, height * width * channels)."""


def generative(model: DensityModel, images: Images, outliers: float = 0.0, width: float = 1.0) -> DensityObjective:
    """The objective of this model, in this width, for images of this shape, with this share of an outlier component.

    ValueError where the model does not support such images.
    """
    model.check(width)
    if is_own(model.name):
        if outliers:
            raise ValueError(f"outliers is {outliers}; it must be 0 for a model of your own, which may hold its own")
        return CustomDensity(str(model), images.shape)
    learned = Elbo(OURS[model.name](images.shape) if width == 1 else WIDE[model.name](images.shape, width))
    return OutlierMixture(learned, outliers, images.test_images) if outliers else learned
