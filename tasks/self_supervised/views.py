"""Views of images: a random window, resized to a square, with changed colours. Whole minibatches are processed at once.

All random numbers are functions of the seed, the epoch and the step. A window is cropped in the image's original
geometry. It is sampled with the triangle kernel of bilinear interpolation, which is as wide as an output pixel if the
window is reduced (antialiased, as in torchvision and Pillow), and then blurred with a Gaussian. Both are products of
two matrices, one per axis. Colour changes consist of one 3 x 3 matrix and one constant per image: brightness, contrast,
saturation, hue (a rotation about the grey axis) and grey, in this order, clipped once after the last, as in the code of
the audit's paper (which computes contrast and saturation from the grey of the unchanged image); solarisation follows. A
view therefore needs one product per axis and one for colours and normalisation.

torchvision's ColorJitter instead uses a random order, clips after each change, and rotates hue in HSV.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.numerics import seeds
from tasks.self_supervised.networks import DEVIATION, MEAN
from tasks.self_supervised.pretraining_config import Augmentation

TRIES = 10  # number of drawn windows; the first that fits into the image is used
RATIOS = (math.log(3 / 4), math.log(4 / 3))
# Share of images with changed colours, and the largest change of each property.
JITTERED = 0.8
BRIGHTNESS = 0.4
CONTRAST = 0.4
SATURATION = 0.2
HUE = 0.1
GREY = (0.299, 0.587, 0.114)  # ITU-R 601, as in torchvision and Pillow
SIGMAS = (0.1 / 224, 2 / 224)  # of the blur, relative to the side of the view
SOLARISED_FROM = 128 / 255
# The uniform numbers of a view, in this order.
WINDOW = 4 * TRIES
NAMES = ("flip", "jitter", "brightness", "contrast", "saturation", "hue", "grey", "blur", "sigma", "solarise")
COLUMNS = {name: WINDOW + index for index, name in enumerate(NAMES)}
NUMBERS = WINDOW + len(NAMES)


def draw_views(seed: int, epoch: int, step: int, rows: int, views: int = 2) -> Tensor:
    """Draw the uniform numbers of a step's views, (views, rows, NUMBERS) on the CPU.

    They are the same on every device.
    """
    generator = torch.Generator().manual_seed(seeds.derive(seed, "views", epoch, step))
    return torch.rand(views, rows, NUMBERS, generator=generator)


@dataclass(frozen=True, eq=False)
class Drawing:
    """The random changes of each image in a view."""

    windows: Tensor  # (n, 4): left, top, right and bottom, in image widths and heights
    flipped: Tensor  # (n,) bool
    sigma: Tensor | None  # (n,) blur in pixels of the view, 0 without; None: no image is blurred
    mixing: Tensor  # (n, 3, 3): matrix from old to new colours
    contrast: Tensor  # (n,): the share of the mean grey in the new colours
    solarised: Tensor  # (m,): solarised rows


def drawing(config: Augmentation, numbers: Tensor, sizes: Tensor, view: int) -> Drawing:
    """Return the changes of a view (0 or 1) of images with these sizes (n, 2: height, width).

    They are computed from the uniform numbers (n, NUMBERS).
    """

    def number(name: str) -> Tensor:
        return numbers[:, COLUMNS[name]]

    changed = number("jitter") < JITTERED

    def factor(name: str, amplitude: float) -> Tensor:
        """Return factors in [1 - amplitude, 1 + amplitude], or 1 if colours are not changed."""
        return torch.where(changed, 1 + amplitude * config.jitter * (2 * number(name) - 1), 1)

    brightness = factor("brightness", BRIGHTNESS)
    contrast = factor("contrast", CONTRAST)
    turn = 2 * math.pi * (factor("hue", HUE) - 1)
    mixed = hue(turn) @ _mix_with_grey(factor("saturation", SATURATION))
    mixed = _mix_with_grey(1 - (number("grey") < config.grey).float()) @ mixed
    low, high = (config.resolution * end for end in SIGMAS)
    sigma = torch.where(number("blur") < config.blur, low + (high - low) * number("sigma"), 0)
    solarised = number("solarise") < (config.solarise if view == 1 else 0)
    return Drawing(
        windows(config, numbers[:, :WINDOW].view(-1, TRIES, 4), sizes),
        number("flip") < config.flip,
        sigma if config.blur and view == 0 else None,
        mixed * (brightness * contrast)[:, None, None],
        brightness * (1 - contrast),
        solarised.nonzero()[:, 0],
    )


def windows(config: Augmentation, numbers: Tensor, sizes: Tensor) -> Tensor:
    """Return the windows (n, 4), as shares of width and height, of images with these sizes (n, 2).

    They are computed from the uniform numbers (n, TRIES, 4). The first of ten windows inside the image is used, or else
    the largest central window with an allowed ratio, as in torchvision's RandomResizedCrop, which uses whole pixels.
    """
    height = sizes[:, :1].float()
    width = sizes[:, 1:].float()
    area = (config.min_area + (1 - config.min_area) * numbers[..., 0]) * height * width
    ratio = (RATIOS[0] + (RATIOS[1] - RATIOS[0]) * numbers[..., 1]).exp()
    wide = (area * ratio).sqrt() / width
    high = (area / ratio).sqrt() / height
    inside = (wide <= 1) & (high <= 1)
    first = inside.int().argmax(1, keepdim=True)  # the first of the largest
    wide = wide.gather(1, first)[:, 0]
    high = high.gather(1, first)[:, 0]
    across = numbers[..., 2].gather(1, first)[:, 0]
    down = numbers[..., 3].gather(1, first)[:, 0]
    ratio_of_image = width[:, 0] / height[:, 0]
    allowed_ratio = ratio_of_image.clamp(math.exp(RATIOS[0]), math.exp(RATIOS[1]))
    is_inside = inside.any(1)
    wide = torch.where(is_inside, wide, (allowed_ratio / ratio_of_image).clamp(max=1))
    high = torch.where(is_inside, high, (ratio_of_image / allowed_ratio).clamp(max=1))
    left_edge = torch.where(is_inside, across, 0.5) * (1 - wide)
    top_edge = torch.where(is_inside, down, 0.5) * (1 - high)
    return torch.stack([left_edge, top_edge, left_edge + wide, top_edge + high], 1)


def _mix_with_grey(keeping: Tensor) -> Tensor:
    """Return matrices (n, 3, 3) that mix colours with their grey, keeping the share `keeping` (n,) of the colour."""
    identity = torch.eye(3)
    grey = torch.tensor(GREY).expand(3, 3)
    return keeping[:, None, None] * identity + (1 - keeping)[:, None, None] * grey


def hue(turn: Tensor) -> Tensor:
    """Return rotation matrices (n, 3, 3) about the grey axis by angles (n,): Rodrigues' formula about (1, 1, 1)."""
    cosine = turn.cos()[:, None, None]
    sine = turn.sin()[:, None, None] / math.sqrt(3)
    across = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    return cosine * torch.eye(3) + (1 - cosine) / 3 + sine * across


def view(config: Augmentation, squares: Tensor, changes: Drawing) -> Tensor:
    """Return the normalised view (n, 3, r, r) of square images (n, 3, s, s).

    Images are bytes, or float32 from 0 to 255.
    """
    n = len(squares)
    side = squares.shape[2]
    resolution = config.resolution
    device = squares.device
    bounds = send(changes.windows, device)
    flipped = send(changes.flipped, device)
    mixing = send(changes.mixing, device)
    contrast = send(changes.contrast, device)
    sigma = None if changes.sigma is None else send(changes.sigma, device)
    across = sampling(bounds[:, 0], bounds[:, 2], side, resolution, sigma)
    across = torch.where(flipped[:, None, None], across.flip(1), across)
    down = sampling(bounds[:, 1], bounds[:, 3], side, resolution, sigma)
    x = torch.bmm(squares.to(torch.float32).reshape(n, 3 * side, side), across.transpose(1, 2))
    x = torch.matmul(down[:, None], x.view(n, 3, side, resolution)).view(n, 3, -1)
    return recolour(x, mixing / 255, contrast / 255, changes.solarised).view(n, 3, resolution, resolution)


def recolour(x: Tensor, mixing: Tensor, contrast: Tensor, solarised: Tensor) -> Tensor:
    """Mix colours (n, 3, positions), move them towards their mean grey by a share (n,), clip and normalise them."""
    mean = x.new_tensor(MEAN)
    deviation = x.new_tensor(DEVIATION)
    grey = x.new_tensor(GREY)
    constant = (contrast * (x.mean(2) @ grey))[:, None] - mean
    x = torch.baddbmm((constant / deviation)[..., None], mixing / deviation[:, None], x)
    black = (0 - mean) / deviation
    white = (1 - mean) / deviation
    turning = (SOLARISED_FROM - mean) / deviation
    x.clamp_(black[:, None], white[:, None])
    if len(solarised):
        rows = send(solarised, x.device)
        rows_to_turn = x[rows]
        x[rows] = torch.where(rows_to_turn >= turning[:, None], (black + white)[:, None] - rows_to_turn, rows_to_turn)
    return x


def sampling(start: Tensor, end: Tensor, side: int, resolution: int, sigma: Tensor | None) -> Tensor:
    """Return the matrix (n, resolution, side) that resamples a window to `resolution` pixels, blurred by sigma.

    The window extends from `start` to `end` (n,), as shares of the side. Rows sum to 1, even at the edges of the image.
    """
    scale = ((end - start) * (side / resolution))[:, None]
    middle = (start * side)[:, None] + (torch.arange(resolution, device=start.device) + 0.5) * scale
    pixels = torch.arange(side, device=start.device) + 0.5
    weights = ((middle[..., None] - pixels).abs_() / -scale.clamp(min=1)[..., None]).add_(1).clamp_(min=0)
    weights = weights / weights.sum(2, keepdim=True)
    if sigma is None:
        return weights
    return torch.bmm(blur(sigma, resolution), weights)


def blur(sigma: Tensor, resolution: int) -> Tensor:
    """Return the matrix (n, resolution, resolution) of a Gaussian blur by sigma pixels (n,).

    It is the identity if sigma is 0.
    """
    pixels = torch.arange(resolution, device=sigma.device)
    squared = (pixels[:, None] - pixels).square().float()
    weights = (squared * (-0.5 / sigma.square().clamp(min=1e-6))[:, None, None]).exp_()
    return weights / weights.sum(2, keepdim=True)


def send(part: Tensor, device: torch.device) -> Tensor:
    """Copy the tensor to the device asynchronously."""
    if device.type != "cuda":
        return part.to(device)
    return part.pin_memory().to(device, non_blocking=True)
