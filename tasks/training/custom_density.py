"""A user's own model of the density of images, such as a flow or a diffusion model with its bound, and its training.

`package.module:factory` names a function: factory(shape), with shape (channels, height, width), makes a
torch.nn.Module. Its images are float32 (rows, channels, height, width), its numbers are in nats:

    log_prob(images) -> (rows,)   the log density of what it sees, or an estimate or a bound of it
    loss(images) -> (rows,)       what training minimises, summed over a minibatch; -log_prob(images) without it
    sample(count) -> images       (count, channels, height, width) of what it sees; without it, no images are drawn
    sees = "dequantised"          what it sees of a byte

`sees`, `loss` and `sample` may be left out. What a module sees of a byte is, afresh in every step of training,

- "dequantised": (byte + u) / 256, u uniform, in (0, 1);
- "binary": 1 with probability byte / 255, else 0;
- "logit": logit(0.05 + 0.9 (byte + u) / 256).

Log densities of that become those of the bytes here, by the change of variables: log_prob does nothing about it. In
evaluation every observation has one fixed view that all models share, or a view for each model.

Random numbers come from torch's generator, on the device of the images: the initial weights are those of one seed, and
so are a step of training, `sample`, and log_prob of a block of 128 observations (rows 0 to 127 of the data set, 128 to
255, ...), each for one model. So no result depends on what else is computed. Constants of the module should be
buffers, which move to the device and are kept with the weights. In evaluation mode each row is evaluated by itself, at
most 128 at a time. Several models are trained in one pass where torch.vmap gives the same as each alone, without random
numbers of the module's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng, site_key, step_keys
from tasks.models.importance import Estimated, Sampling, model_inputs
from tasks.models.layers import Layers, Mode, Weight
from tasks.models.likelihoods import Binary, Dequantised, Logit, Preparation, Shape
from tasks.models.modules import TRIED, Method, Module, drawing, kind, one_line
from tasks.training.objective import Batch

SEES: Mapping[str, Callable[[Shape], Preparation]] = {
    "dequantised": Dequantised,
    "binary": lambda shape: Binary(shape, padding=0),
    "logit": lambda shape: Logit(shape, mirrored=False),
}
SAMPLED = 256  # images at a time


class DensityModule:
    """The density model that a user's factory makes for images (height, width, channels).

    It is tried on a few images. ValueError, in one line, where it cannot be used.
    """

    def __init__(self, text: str, shape: Shape) -> None:
        height, width, channels = shape
        self.name = text
        self.module = Module(text, (channels, height, width))
        self.preparation = self._preparation(shape)
        tried = self._trial(shape)
        if not self._can("log_prob"):
            raise ValueError(f"network {text} has no method log_prob(images)")
        self.log_prob = Method(self.module, "log_prob", "log densities", tried, chancy=True)
        if self.log_prob.tried.isposinf().any():
            raise ValueError(f"{self.log_prob.whose} makes inf of {TRIED} images; densities are finite")
        own_loss = self._can("loss")
        self._loss = Method(self.module, "loss", "losses", tried, chancy=True) if own_loss else self.log_prob
        self._loss.check_gradients()

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the module."""
        return self.module.weights

    @property
    def stackable(self) -> bool:
        """Whether several models can be trained in one pass."""
        return self._loss.stackable

    def losses(self, layers: Layers, images: Tensor) -> Tensor:
        """The losses of training, (models, rows), of images as seen, (models, rows, channels, height, width)."""
        outputs = self._loss.compute(layers, images)
        return -outputs if self._loss is self.log_prob else outputs

    def check_samples(self) -> None:
        """Raise ValueError, in one line, unless images can be drawn from the module."""
        if not self._can("sample"):
            raise ValueError(f"network {self.name} has no method sample(count), so that no images can be drawn of it")
        tensors = {name: torch.from_numpy(values) for name, values in self.module.initial(0).items()}
        if not torch.equal(self.samples(tensors, TRIED, 0), self.samples(tensors, TRIED, 0)):
            raise ValueError(f"network {self.name}: sample does not follow torch's seed; draw with torch alone")

    def samples(self, tensors: Mapping[str, Tensor], count: int, seed: int) -> Tensor:
        """Images of one model, with tensors (*shape), in [0, 1]: (count, height * width * channels)."""
        parts = []
        with drawing(seed, next(iter(tensors.values())).device), torch.no_grad():
            for start in range(0, count, SAMPLED):
                parts.append(self._sample(tensors, min(SAMPLED, count - start)))
        return self.preparation.displayed_pixels(torch.cat(parts)[None].flatten(2))[0].clamp(0, 1)

    def _sample(self, tensors: Mapping[str, Tensor], count: int) -> Tensor:
        try:
            images = self.module.apply("sample", tensors, False, count)[0]
        except Exception as error:
            raise ValueError(f"network {self.name}: sample failed on {count}: {one_line(error)}") from error
        expected = (count, *self.preparation.seen_shape)
        shape = tuple(images.shape) if isinstance(images, Tensor) else kind(images)
        if not isinstance(images, Tensor) or shape != expected:
            raise ValueError(f"network {self.name}: sample makes {shape} for {count}; it must make images {expected}")
        if images.isnan().any():
            raise ValueError(f"network {self.name}: sample makes not-a-numbers")
        return images

    def _can(self, name: str) -> bool:
        return callable(self.module.attribute(name))

    def _preparation(self, shape: Shape) -> Preparation:
        sees = self.module.attribute("sees", "dequantised")
        if not isinstance(sees, str) or sees not in SEES:
            raise ValueError(f"network {self.name}: sees is {sees!r}; it must be one of {', '.join(SEES)}")
        return SEES[sees](shape)

    def _trial(self, shape: Shape) -> Tensor:
        """Random bytes as the module sees them."""
        stream = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (1, TRIED, shape[0] * shape[1] * shape[2]), dtype=torch.uint8, generator=stream)
        seen = self.preparation.to_model_inputs(pixels, CounterRng(torch.zeros(1, dtype=torch.int64)), torch.float32)
        return torch.unflatten(seen[0], 1, self.preparation.seen_shape)


@cache
def density_module_of(name: str, shape: Shape) -> DensityModule:
    """The density model of this name, made and tried once per process."""
    return DensityModule(name, shape)


ESTIMATED, DRAWN = -6, -7  # sites for the keys of log densities and of images, beside those of our own models
BLOCK = 128  # observations whose log densities draw from one seed, and rows evaluated at a time


class CustomDensity:
    """A user's own model learns the density of images (height, width, channels).

    The loss of an image is the module's `loss`, or -log_prob, in nats, of what it sees of the image in this draw. A
    minibatch's loss is the sum. Labels are not used. `tasks.training.custom_density` describes what a module must do.
    """

    total = True

    captures_padding = False

    def __init__(self, name: str, shape: Shape) -> None:
        self.model = density_module_of(name, shape)
        self.preparation = self.model.preparation

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def stackable(self) -> bool:
        return self.model.stackable

    @property
    def capturable(self) -> bool:
        # Nothing in a step that vmap can compute depends on values, or on torch's generator.
        return self.stackable

    @property
    def weights(self) -> Mapping[str, Weight]:
        return self.model.weights

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        return self.model.module.initial(seed)

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        images, _ = self._model_inputs(tensors, batch)
        return self.model.losses(Layers(tensors, batch.mode), images).to(images.dtype)

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Each row's loss in evaluation, from the one draw that the batch's mode names. Nothing is classified.

        At most 128 rows at a time: a module that takes many samples of each row takes memory for all of them.
        """
        images, keys = self._model_inputs(tensors, batch)
        losses = []
        for start in range(0, images.shape[1], BLOCK):
            mode = Mode(draws=CounterRng(step_keys(keys, torch.full_like(keys, start))))
            losses.append(self.model.losses(Layers(tensors, mode), images[:, start : start + BLOCK]))
        return torch.cat(losses, 1).to(images.dtype), None

    def _model_inputs(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """The batch as the models see it, (models, rows, channels, height, width), and the keys of its draws."""
        draws, dtype = batch.mode.draws, next(iter(tensors.values())).dtype
        if draws is None:
            raise ValueError("what is seen is a draw: the batch's mode has no draws")
        return self._images(
            self.preparation.to_model_inputs(batch.pixels, draws, dtype, batch.mode.training)
        ), draws.keys

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """The module's log_prob; how it is estimated is its own affair."""
        return Estimated(self.log_p(tensors, pixels, rows, members, sampling), None)

    def log_p(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Tensor:
        """The module's log_prob of what it sees, converted to bytes. ValueError where it is NaN or inf.

        Rows are evaluated in blocks of 128 by their numbers. Random numbers come from a seed of the model and the
        block, and a row has its place in the block even where the others are missing; so an estimate does not depend on
        the rows estimated beside it. Of `sampling`, only the view bears on a user's module.
        """
        dtype = next(iter(tensors.values())).dtype
        log_p = torch.empty(len(members), len(pixels), dtype=torch.float64, device=pixels.device)
        numbers = rows // BLOCK
        with torch.no_grad():  # inference mode would take autograd from modules that need it for a log density
            for number in torch.unique(numbers).tolist():
                part = (numbers == number).nonzero()[:, 0]
                x = model_inputs(self.preparation, pixels[part], rows[part], members, sampling, dtype)
                images = self._images(x).expand(len(members), *[-1] * 4)
                draws = CounterRng(step_keys(members ^ site_key(ESTIMATED), torch.full_like(members, number)))
                seen_log_p = self._log_prob(Layers(tensors, Mode(draws=draws)), images, rows[part] % BLOCK)
                log_p[:, part] = seen_log_p.double() + self.preparation.to_pixels(x.double())
        self._check(log_p, rows)
        return log_p

    def _log_prob(self, layers: Layers, images: Tensor, places: Tensor) -> Tensor:
        """log_prob of images (models, rows, channels, height, width) at these places (rows,) of their block."""
        if not self.model.log_prob.random(training=False):
            return self.model.log_prob.compute(layers, images)
        whole = images[:, :1].expand(-1, BLOCK, -1, -1, -1).clone()
        whole[:, places] = images
        return self.model.log_prob.compute(layers, whole)[:, places]

    def _check(self, log_p: Tensor, rows: Tensor) -> None:
        wrong = log_p.isnan() | log_p.isposinf()
        if wrong.any():
            model, place = wrong.nonzero()[0].tolist()
            value = float(log_p[model, place])
            raise ValueError(f"{self.model.log_prob.whose} makes {value} of observation {int(rows[place])}")

    def _images(self, x: Tensor) -> Tensor:
        """(models, rows, features) as (models, rows, channels, height, width)."""
        return torch.unflatten(x, 2, self.preparation.seen_shape)

    def check_drawn(self) -> None:
        self.model.check_samples()

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Samples of the module as pixels: (models, count, height * width * channels) in [0, 1]."""
        keys = (members ^ site_key(DRAWN)).tolist()
        weights = [{name: tensor[model].detach() for name, tensor in tensors.items()} for model in range(len(keys))]
        return torch.stack([self.model.samples(own, count, key) for own, key in zip(weights, keys, strict=True)])
