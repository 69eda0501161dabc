"""The dense first layer of an external model, and the gradient of a label's logit with respect to its units.

The first layer is the model's first weight matrix that has one column per number in an image, and biases. Only torch
models are supported: TorchScript, torch.export, factories, timm and transformers.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import Pixels
from tasks.external.loading import LoadedModel, choose_output, prepare_images
from tasks.external.model_file import Gives
from tasks.worker.hardware import exactly

Array = NDArray[np.float64]


def label_gradients(loaded_model: LoadedModel, images: Pixels, label: int) -> tuple[Array, Array]:
    """Return the first layer's weights (units, h w c) and the gradients (units,) with respect to its biases.

    The differentiated quantity is the mean, over the images (n, h, w, c), of the label's logit minus the mean over
    classes. Columns are the pixels of a flattened image. Raises ValueError if the model has no such layer.
    """
    weight, bias = first_layer(loaded_model)
    total = torch.zeros_like(bias)
    with exactly(bias.device), torch.enable_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        for start in range(0, len(images), loaded_model.rows):
            part = images[start : start + loaded_model.rows]
            filled = np.concatenate([part, np.repeat(part[:1], loaded_model.rows - len(part), axis=0)])
            batch = torch.from_numpy(prepare_images(filled, loaded_model.interface)).to(bias.device)
            assert loaded_model.module is not None
            outputs = choose_output(loaded_model.module(batch), loaded_model.interface.output)[: len(part)]
            centred = centred_logits(outputs, loaded_model.interface.gives, label, loaded_model.model.name)
            total += torch.autograd.grad(centred.sum() / len(images), bias)[0]
    return _in_image_order(weight, loaded_model), total.detach().cpu().numpy().astype(np.float64)


def first_layer(loaded_model: LoadedModel) -> tuple[Tensor, Tensor]:
    """Return the weights and biases of the first layer. Raises ValueError if no layer takes all pixels."""
    where = f"model {loaded_model.model.name}"
    if not isinstance(loaded_model.module, torch.nn.Module):
        raise ValueError(f"{where} is ONNX; first_layer supports only torch models")
    parameters = dict(loaded_model.module.named_parameters())
    pixels = int(np.prod(loaded_model.shape))
    for name, weight in parameters.items():
        bias = None
        if name.endswith("weight"):
            bias = parameters.get(f"{name.removesuffix('weight')}bias")
        if bias is not None and weight.shape == (len(bias), pixels):
            return weight, bias.requires_grad_()
    raise ValueError(f"{where} has no dense first layer with biases that takes all {pixels} numbers of an image")


def centred_logits(outputs: Tensor, gives: Gives, label: int, name: str) -> Tensor:
    """Return the label's logit minus the mean over classes, (n,).

    The outputs are (n, classes), or (n, 1) for two classes.
    """
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        column = outputs.reshape(-1)
        # for all three kinds of outputs, log p - log (1 - p) is the logit of class 1
        if gives == "logits":
            odds = column
        else:
            odds = torch.logit(column if gives == "probabilities" else column.exp())
        outputs = torch.stack([torch.zeros_like(odds), odds], dim=1)
    elif gives == "probabilities":
        outputs = outputs.log()
    if label >= outputs.shape[1]:
        raise ValueError(f"label is {label}; expected a class of model {name}, 0 to {outputs.shape[1] - 1}")
    return outputs[:, label] - outputs.mean(dim=1)


def _in_image_order(weight: Tensor, loaded_model: LoadedModel) -> Array:
    """Reorder columns from the model's layout to that of a flattened image (h, w, c)."""
    values = weight.detach().cpu().numpy().astype(np.float64)
    if loaded_model.interface.layout == "nhwc":
        return values
    height, width, channels = loaded_model.shape
    return values.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(len(values), -1)
