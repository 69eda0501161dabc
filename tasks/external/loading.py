"""Load external models and evaluate them: images in, log-probabilities out.

loaded = loading.load_model(model, (28, 28, 1), Interface(gives="probabilities"))
loaded.answers(images).log_p  # (n, classes)
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.contract.extras import ONNXRUNTIME
from tasks.datasets.images import Pixels, fractions, is_table
from tasks.datasets.picture_rows import Sliceable
from tasks.external import archives, onnx_session
from tasks.external.file_contents import folder_normalisation
from tasks.external.model_file import Interface, ModelFile, content, folder_content
from tasks.external.outputs import Answers, check_asked_twice, other_batch, read_answers
from tasks.external.weights import (
    load_classifier,
    load_weights,
    make_network,
    network_of_timm,
    one_line,
    watch_first_call,
)
from tasks.models import modules
from tasks.models.catalog import is_record
from tasks.worker.hardware import device, exactly

Batch = NDArray[np.float32]  # images in the form that the model takes
Forward = Callable[[Batch], NDArray[np.floating]]
FAILED = "failed on"
# Error messages that may be caused by the batch size.
MISFIT = re.compile(r"shape|size|dimension|expected a row for each|reshape|broadcast|Expected", re.IGNORECASE)
TRAINING_MODE = "export it in evaluation mode (model.eval()), in which dropout is off and batch norm's statistics fixed"


@dataclass(frozen=True)
class Rows:
    """The batch sizes that a model allows."""

    minimum: int = 1
    maximum: int | None = None

    def nearest(self, size: int) -> int:
        return max(self.minimum, size if self.maximum is None else min(size, self.maximum))


@dataclass(eq=False)
class LoadedModel:
    """A model loaded for images of one shape (height, width, channels)."""

    model: ModelFile
    interface: Interface
    shape: tuple[int, int, int]
    classes: int | None
    rows: int  # batch size
    forward: Forward
    module: Callable[[Tensor], Any] | None = None  # a torch module; None for ONNX
    _tried: bool = field(default=False, init=False)

    def answers(self, images: Sliceable) -> Answers:
        """Evaluate the model on images (n, h, w, c).

        All batches have the same size; the last one is padded with its first image. The first batch is evaluated twice,
        the second time in another order. If the two results differ, the model draws random numbers or depends on other
        images, like a model exported in training mode. Raises ValueError in this case, and if the model fails or its
        outputs are invalid.
        """
        first = images[: self.rows]
        is_expected = first.dtype == np.uint8 or is_table(first)
        if not is_expected or images.shape[1:] != self.shape:
            raise ValueError(f"images are {first.dtype} {images.shape}; expected uint8 (n, {self._size})")
        if not len(images):
            raise ValueError(f"model {self.model.name}: there are no images to evaluate")
        if not self._tried:
            self._try(first)
            self._tried = True
        raw = [self.raw(images[start : start + self.rows]) for start in range(0, len(images), self.rows)]
        return self._read_answers(np.concatenate(raw), len(images))

    def _try(self, images: Pixels) -> None:
        first = self._read_answers(self.raw(images), len(images)).log_p
        half = other_batch(first)
        second = self._read_answers(self.raw(images[half]), len(half)).log_p
        check_asked_twice(first[half], second, self._where, TRAINING_MODE)

    def raw(self, images: Pixels) -> NDArray[np.floating]:
        """Return the raw outputs for at most `rows` images. Raises ValueError if the model fails."""
        return self.raw_fractions(fractions(images))

    def raw_fractions(self, images: NDArray[np.float32]) -> NDArray[np.floating]:
        """Return the raw outputs for at most `rows` images (n, h, w, c) in [0, 1]."""
        filled = np.concatenate([images, np.repeat(images[:1], self.rows - len(images), axis=0)])
        try:
            outputs = self.forward(_arrange_fractions(filled, self.interface))
        except Exception as error:
            raise ValueError(f"{self._where} {FAILED} {self.rows} images of {self._size}: {one_line(error)}") from error
        if outputs.ndim and len(outputs) != self.rows:
            raise ValueError(f"{self._where} returns {outputs.shape} for {self.rows} images; expected a row for each")
        return outputs[: len(images)] if outputs.ndim else outputs[None]

    def _read_answers(self, outputs: NDArray[np.floating], rows: int) -> Answers:
        gives = self.interface.gives
        return read_answers(
            outputs,
            gives,
            rows,
            where=self._where,
            classes=self.classes,
            row_name="image {}".format,
            remedy="set interface.gives=probabilities, or export the model without its final softmax or sigmoid",
        )

    @property
    def _where(self) -> str:
        return f"model {self.model.name}"

    @property
    def _size(self) -> str:
        return " x ".join(map(str, self.shape))


def load_model(
    model: ModelFile,
    shape: tuple[int, int, int],
    interface: Interface = Interface(),
    classes: int | None = None,
    target_device: torch.device | None = None,
) -> LoadedModel:
    """Load a model for images of this shape (height, width, channels).

    torch models run on a GPU if there is one that can run them, otherwise on the CPU with one thread. ONNX models
    always run on the CPU. `classes` is the number of classes that the outputs must have, if known; a factory requires
    it. Raises ValueError for other kinds of files and for files that would have to be unpickled.
    """
    folder: Mapping[str, bytes] = {}
    if model.kind == "transformers":
        folder = folder_content(model)
        if not interface.mean:
            mean, std = folder_normalisation(model.name, folder)
            interface = replace(interface, mean=mean, std=std)
        if not interface.output:
            interface = replace(interface, output="logits")
    _check_channels(interface, shape)
    model_bytes = b"" if folder else content(model)
    if model.kind == "onnx":
        rows, forward = onnx(model, model_bytes, interface, axes=2 if is_record(shape) else 4)
        return _fit_batch(LoadedModel(model, interface, shape, classes, rows.nearest(interface.batch), forward))
    if target_device is not None:
        devices = [target_device]
    else:
        devices = list(dict.fromkeys([device(), torch.device("cpu")]))
    for candidate in devices:
        if folder:
            rows = Rows()
            module = load_classifier(model.name, folder, candidate)
        else:
            rows, module = _module(model, model_bytes, shape, interface, classes, candidate)
        loaded_model = LoadedModel(
            model,
            interface,
            shape,
            classes,
            rows.nearest(interface.batch),
            _forward(module, interface.output, candidate),
            module,
        )
        try:
            return _fit_batch(loaded_model)
        except ValueError:  # a traced model may contain tensors that stay on the CPU
            if candidate == devices[-1]:
                raise
    raise AssertionError("there is no device to run a model")


def accepts_shape(model: ModelFile, shape: tuple[int, int, int], interface: Interface, classes: int) -> bool:
    """Return whether a torch model returns numbers for one image of this shape (height, width, channels), on the CPU.

    Unlike `load_model`, it tries no other batch size. ONNX models state their shape, so `load_model` decides.
    """
    if model.kind in ("onnx", "transformers"):
        try:
            load_model(model, shape, interface, classes)
        except ValueError:
            return False
        return True
    cpu = torch.device("cpu")
    image = _arrange_fractions(np.zeros((1, *shape), np.float32), interface)
    try:
        _, module = _module(model, content(model), shape, interface, classes, cpu)
        _forward(module, interface.output, cpu)(image)
    except Exception:  # the model is the user's and may raise anything
        return False
    return True


BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)  # common batch sizes of traced models
MOST_BATCH = 4096
NUMBERS = re.compile(r"\d+")


def _fit_batch(loaded_model: LoadedModel) -> LoadedModel:
    """Return the model with a batch size that it accepts: that of its interface, or the one it was traced with.

    A traced model may have a fixed batch size. If it fails, a batch of one image is tried, then the numbers in its
    error message, then common sizes. Raises ValueError if it accepts none of them.
    """
    image = np.zeros((1, *loaded_model.shape), np.uint8)
    try:
        loaded_model.raw(image)
        return loaded_model
    except ValueError as error:
        refusal = error
    if loaded_model.model.kind not in ("torchscript", "onnx") or not MISFIT.search(str(refusal)):
        raise refusal
    reason = str(refusal.__cause__ or refusal)  # the full message, since the line may be truncated
    mentioned_sizes = [int(number) for number in NUMBERS.findall(reason) if len(number) < 5]
    sizes = [
        size
        for size in dict.fromkeys((1, *mentioned_sizes, *BATCHES))
        if 0 < size <= MOST_BATCH and size != loaded_model.rows
    ]
    for size in sizes:
        fitted = replace(loaded_model, rows=size)
        try:
            fitted.raw(image)
        except ValueError:
            continue
        return fitted
    raise ValueError(
        f"{refusal}; it also fails on batches of {', '.join(map(str, sizes))}: set interface.batch if it requires "
        "another size, or export it for any size"
    )


def _check_channels(interface: Interface, shape: tuple[int, int, int]) -> None:
    """Raise ValueError if images of this shape cannot be normalised with this interface."""
    if len(interface.mean) > 1 and len(interface.mean) != shape[2]:
        raise ValueError(f"mean has {len(interface.mean)} numbers, but the images have {shape[2]} channels")


def log_probabilities(
    model: ModelFile, images: Pixels, interface: Interface = Interface(), classes: int | None = None
) -> Answers:
    """Load a model and evaluate it on images (n, h, w, c); see `load_model` and `LoadedModel.answers`."""
    height, width, channels = images.shape[1:]
    return load_model(model, (height, width, channels), interface, classes).answers(images)


def prepare_images(images: Pixels, interface: Interface) -> Batch:
    """Scale, normalise and lay out images as the interface specifies, in float32."""
    return _arrange_fractions(fractions(images), interface)


def _arrange_fractions(pixels: Batch, interface: Interface) -> Batch:
    """Normalise and lay out images (n, h, w, c) in [0, 1] as the interface specifies.

    The records of a table become rows (n, features).
    """
    if interface.mean:
        mean = np.array(interface.mean, np.float32)
        std = np.array(interface.std, np.float32)
        pixels = (pixels - mean) / std
    if is_table(pixels):
        return np.ascontiguousarray(pixels.reshape(len(pixels), -1))
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2) if interface.layout == "nchw" else pixels)


def _module(
    model: ModelFile,
    model_bytes: bytes,
    shape: tuple[int, int, int],
    interface: Interface,
    classes: int | None,
    target_device: torch.device,
) -> tuple[Rows, Callable[[Tensor], Any]]:
    if model.kind == "torchscript":
        return Rows(), torchscript(model, model_bytes, target_device)
    if model.kind == "export":
        return _load_program(
            model, model_bytes, target_device, prepare_images(np.zeros((1, *shape), np.uint8), interface).shape[1:]
        )
    if model.factory is None:
        return Rows(), load_weights(model, model_bytes, network_of_timm(model, shape, classes), target_device)
    module = load_weights(model, model_bytes, make_network(model, shape, classes), target_device)
    return Rows(), watch_first_call(model.factory, module)


def _forward(module: Callable[[Tensor], Any], output: str, target_device: torch.device) -> Forward:
    def forward(images: Batch) -> NDArray[np.floating]:
        # Otherwise TorchScript recompiles itself in the third call, which changes rounding.
        with exactly(target_device), torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            tensor = choose_output(module(torch.from_numpy(images).to(target_device)), output)
            if not isinstance(tensor, Tensor):
                raise TypeError(f"its output is a {modules.kind(tensor)}, not a tensor")
            result: NDArray[np.float64] = tensor.detach().to("cpu", torch.float64).numpy()
        return result

    return forward


def choose_output(outputs: Any, output: str) -> Any:
    """Return the output with this name or number, or the only output if no name is given."""
    if isinstance(outputs, Mapping):
        outputs_by_name = {str(name): value for name, value in outputs.items()}
    elif isinstance(outputs, Sequence):
        outputs_by_name = {str(number): value for number, value in enumerate(outputs)}
    else:
        outputs_by_name = {"0": outputs}
    if output:
        if output not in outputs_by_name:
            raise ValueError(f"it has no output {output!r}; it has {', '.join(outputs_by_name)}")
        return outputs_by_name[output]
    if len(outputs_by_name) != 1:
        raise ValueError(
            f"it has {len(outputs_by_name)} outputs: {', '.join(outputs_by_name)}; set output to one of these names"
        )
    return next(iter(outputs_by_name.values()))


def torchscript(model: ModelFile, model_bytes: bytes, target_device: torch.device) -> Callable[[Tensor], Any]:
    """Load a TorchScript module in evaluation mode from bytes that `content` has checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # TorchScript is deprecated, but its files are in use
        try:
            module = torch.jit.load(io.BytesIO(model_bytes), map_location=target_device)  # type: ignore[no-untyped-call]
            module.eval()
        except Exception as error:
            raise ValueError(f"model {model.name} cannot be read: {one_line(error)}") from error
    result: Callable[[Tensor], Any] = module
    return result


def _load_program(
    model: ModelFile, model_bytes: bytes, target_device: torch.device, image: tuple[int, ...]
) -> tuple[Rows, Callable[[Tensor], Any]]:
    """Load a torch.export program for images of this shape, along with the batch sizes it allows."""
    from torch.export.passes import move_to_device_pass

    try:
        program = archives.program(model_bytes)
        inputs = program.graph_signature.user_inputs
        if len(inputs) != 1:
            raise ValueError(f"it takes {len(inputs)} inputs; expected images only")
        rows = _rows(program, str(inputs[0]), image)
        # Guards are Python code in the file, so the sizes are checked above instead.
        return rows, move_to_device_pass(program, target_device).module(check_guards=False)
    except archives.Refused as error:
        raise ValueError(f"model {model.name} is refused: {error}; such a file can run arbitrary code") from None
    except Exception as error:
        raise ValueError(f"model {model.name} cannot be read: {one_line(error)}") from error


def _rows(program: Any, name: str, image: tuple[int, ...]) -> Rows:
    meta = next(node.meta["val"] for node in program.graph.nodes if node.name == name)
    if not isinstance(meta, Tensor) or not meta.ndim:
        raise ValueError(f"its input {name} is not a tensor of images")
    size, *fixed = meta.shape
    if len(fixed) != len(image) or any(isinstance(a, int) and a != b for a, b in zip(fixed, image, strict=True)):
        raise ValueError(f"it takes images of shape {tuple(fixed)}, but the images have {image}")
    if isinstance(size, int):
        return Rows(size, size)
    span = program.range_constraints.get(size.node.expr)
    if span is None:
        return Rows()
    # The upper bound may be sympy's infinity.
    return Rows(max(1, int(span.lower)), int(span.upper) if span.upper.is_Integer else None)


def onnx(model: ModelFile, model_bytes: bytes, interface: Interface, axes: int = 4) -> tuple[Rows, Forward]:
    """Start onnxruntime on the CPU, in a child process with limited memory (`tasks.external.onnx_session`).

    The model's input has `axes` axes: 4 for images, 2 for rows of a table.
    """
    if not onnx_session.is_installed():
        raise ValueError(f"model {model.name} is ONNX, which needs {ONNXRUNTIME.advice}")
    try:
        session = onnx_session.OnnxSession(model_bytes)
    except ValueError as error:
        raise ValueError(f"model {model.name} cannot be read: {_outside(str(error))}") from None
    inputs = session.inputs
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != axes:
        description = ", ".join(f"{argument.name} {argument.type} {list(argument.shape)}" for argument in inputs)
        raise ValueError(
            f"model {model.name} takes {description}; expected one float32 tensor of "
            f"{'images with four axes' if axes == 4 else 'rows with two axes'}"
        )

    def forward(images: Batch) -> NDArray[np.floating]:
        output = choose_output(session.run(images), interface.output)
        if not isinstance(output, np.ndarray) or output.dtype.kind != "f":
            if isinstance(output, onnx_session.Other):
                kind = output.kind
            else:
                kind = output.dtype
            raise TypeError(f"its output is {kind}, not a float tensor")
        return output

    size = inputs[0].shape[0]
    return (Rows(size, size) if isinstance(size, int) and size > 0 else Rows()), forward


def _outside(text: str) -> str:
    if "external" not in text.lower():
        return text
    return "its weights are in another file; save one file: torch.onnx.export(..., external_data=False), or onnx.save"
