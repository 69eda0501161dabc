"""The model that `engram.audit` is given: a torch module, a function, or a file, asked for logits in one way.

Images are given to it in the first form that it takes: as they are, scaled to [0, 1], or with their axes in the order
of its first convolution. If it takes several, that form is used in which it is best about the labels of both sets.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.external.audit_inputs import BYTE, CHANNELS, RecordSet, is_bytes
from tasks.external.outputs import check_asked_twice, check_class_order, other_batch, read_answers

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ask = Callable[[Array], Any]

WHERE = "model"
FAILED = "failed on"
LOGITS = "pass a function that gives the logits, such as lambda images: model(images).log()"
EXPECTED = "a torch module, a function of a batch of images, or the path of a model's file"


@dataclass(frozen=True)
class Form:
    """A way to give images to a model, and its description; the empty one gives them unchanged."""

    description: str
    apply: Callable[[Array], Array]


def ask_model(
    model: Any, sets: tuple[RecordSet, RecordSet], batch: int
) -> tuple[tuple[Floats, Floats], tuple[RecordSet, RecordSet]]:
    """log p of each record's label in nats, of both sets, and the sets in the form that the model took.

    Raises ValueError, in one line, if the model fails, gives no logits, or gives two answers to one image.
    """
    classes = int(max(records.labels.max() for records in sets)) + 1
    with _open_model(model, sets, classes, batch) as ask:
        formed = _choose_forms(ask, sets, classes, batch)
        answers = [_log_p(ask, records.images, classes, batch) for records in formed]
        half = other_batch(answers[0][:batch])
        again = _log_p(ask, formed[0].images[half], classes, batch)
    check_asked_twice(answers[0][half], again, WHERE, "call model.eval() before, also inside of a function")
    # Both sets together show the order in a model that generalises, the members alone in one that memorises them.
    for count in (2, 1):
        labels = np.concatenate([records.labels for records in formed[:count]])
        check_class_order(np.concatenate(answers[:count]), labels, WHERE, "number the labels in its order")
    first_scores, second_scores = (
        log_p[np.arange(len(records.labels)), records.labels] for log_p, records in zip(answers, formed, strict=True)
    )
    return (first_scores, second_scores), formed


@contextlib.contextmanager
def _open_model(model: Any, sets: tuple[RecordSet, RecordSet], classes: int, batch: int) -> Iterator[Ask]:
    if isinstance(model, str | Path):
        yield _file_model(str(model), sets[0].images, classes, batch)
    elif _is_module(model):
        with _evaluation_mode(model) as ask:
            yield ask
    elif callable(model) and not isinstance(model, type):
        yield _function_model(model)
    else:
        is_class = isinstance(model, type)
        kind = f"the class {model.__name__}" if is_class else f"a {type(model).__name__}"
        raise ValueError(f"model is {kind}; it must be {EXPECTED}")


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")  # without it, the model is none of its modules
    return torch is not None and isinstance(model, torch.nn.Module)


@contextlib.contextmanager
def _evaluation_mode(model: Any) -> Iterator[Ask]:
    """A module in evaluation mode; afterwards it is in the modes that it was in."""
    import torch

    weights = next((each for each in model.parameters() if each.is_floating_point()), torch.zeros(0))
    modes = [(module, module.training) for module in model.modules()]

    def ask(images: Array) -> Any:
        tensor = torch.as_tensor(np.ascontiguousarray(images), device=weights.device)
        return model(tensor.to(weights.dtype) if tensor.is_floating_point() else tensor)

    model.eval()
    try:
        with torch.no_grad():
            yield ask
    finally:
        for module, mode in modes:
            module.training = mode


def _function_model(model: Callable[[Any], Any]) -> Ask:
    """A function that takes arrays, or else tensors."""

    def ask(images: Array) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            return model(images)
        with torch.no_grad():
            try:
                return model(images)
            except (TypeError, AttributeError):
                tensor = torch.as_tensor(np.ascontiguousarray(images))
                return model(tensor.float() if tensor.is_floating_point() else tensor)

    return ask


def _file_model(name: str, images: Array, classes: int, batch: int) -> Ask:
    """A model's file as every audit reads it, for images in [0, 1] as (channels, height, width)."""
    from tasks.external.loading import load_model
    from tasks.external.model_file import Interface, ModelFile, pin

    if images.ndim not in (3, 4):
        raise ValueError(f"model {name} takes images, and the records have shape {images.shape[1:]}")
    shape = _image_shape(images)
    given = load_model(pin(ModelFile.parse(name)), shape, Interface(batch=batch), classes)

    def ask(part: Array) -> Any:
        pixels = np.asarray(part, np.float32)
        if pixels.ndim != 4 or pixels.shape[1:] != (shape[2], *shape[:2]):
            raise ValueError(f"it takes images of {(shape[2], *shape[:2])}, not {pixels.shape[1:]}")
        pixels = pixels.transpose(0, 2, 3, 1)
        rows = range(0, len(pixels), given.rows)
        return np.concatenate([given.raw_fractions(pixels[start : start + given.rows]) for start in rows])

    return ask


def _image_shape(images: Array) -> tuple[int, int, int]:
    """Height, width and channels of images whose channels may come first, last or not at all."""
    sizes = images.shape[1:]
    if len(sizes) == 2:
        return sizes[0], sizes[1], 1
    return sizes if _has_channels_last(images) else (sizes[1], sizes[2], sizes[0])


def _has_channels_last(images: Array) -> bool:
    return images.ndim == 4 and images.shape[3] in CHANNELS and images.shape[1] not in CHANNELS


def _forms(images: Array) -> list[Form]:
    """The ways to give these images, unchanged first."""
    layouts = [Form("", lambda given: given)]
    if _has_channels_last(images):
        layouts.append(Form("their channels were moved to the front", lambda given: given.transpose(0, 3, 1, 2)))
    if images.ndim == 3:
        layouts.append(Form("they got an axis of one channel", lambda given: given[:, None]))
    if not is_bytes(images):
        return layouts
    scaled = []
    for layout in layouts:
        description = "they were scaled from [0, 255] to [0, 1]"
        both = f"{description}, and {layout.description}" if layout.description else description
        scaled.append(Form(both, _then_scale(layout.apply)))
    return [*layouts, *scaled]


def _then_scale(apply: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def scaled(images: Array) -> Array:
        return np.divide(apply(images), BYTE, dtype=np.float32)

    return scaled


def _choose_forms(ask: Ask, sets: tuple[RecordSet, RecordSet], classes: int, batch: int) -> tuple[RecordSet, RecordSet]:
    """The sets in the form that suits the model; one form for both if they are alike."""
    first = _choose_form(ask, [sets[0], sets[1]] if _are_alike(*sets) else [sets[0]], classes, batch)
    second = first if _are_alike(*sets) else _choose_form(ask, [sets[1]], classes, batch)
    inside, outside = (
        _in_form(records, form, name)
        for records, form, name in zip(sets, (first, second), ("members", "nonmembers"), strict=True)
    )
    return inside, outside


def _are_alike(first: RecordSet, second: RecordSet) -> bool:
    same_shape = first.images.shape[1:] == second.images.shape[1:]
    return same_shape and is_bytes(first.images) == is_bytes(second.images)


def _in_form(records: RecordSet, form: Form, name: str) -> RecordSet:
    if not form.description:
        return records
    notes = (*records.notes, f"{name}: the model does not take images of this form, so {form.description}")
    return RecordSet(np.ascontiguousarray(form.apply(records.images)), records.labels, records.classes, notes)


def _choose_form(ask: Ask, sets: Sequence[RecordSet], classes: int, batch: int) -> Form:
    forms = _forms(sets[0].images)
    if len(forms) == 1:
        return forms[0]
    losses: dict[int, float] = {}
    errors = []
    for number, form in enumerate(forms):
        try:
            losses[number] = float(np.mean([_mean_loss(ask, form, records, classes, batch) for records in sets]))
        except ValueError as error:
            errors.append(error)
    if not losses:  # one that gave something says more than one that failed
        raise next((error for error in errors if FAILED not in str(error)), errors[0])
    return forms[min(losses, key=lambda number: losses[number])]


def _mean_loss(ask: Ask, form: Form, records: RecordSet, classes: int, batch: int) -> float:
    """Of the first records."""
    labels = records.labels[:batch]
    log_p = _log_p(ask, np.ascontiguousarray(form.apply(records.images[:batch])), classes, batch)
    return -float(log_p[np.arange(len(labels)), labels].mean())


def _log_p(ask: Ask, images: Array, classes: int, batch: int) -> Floats:
    logits = _all_logits(ask, images, classes, batch)
    return read_answers(logits, "logits", len(logits), where=WHERE, remedy=LOGITS).log_p


def _all_logits(ask: Ask, images: Array, classes: int, batch: int) -> Floats:
    """What the model gives for all images, in batches; ValueError, in one line, where it fails."""
    parts = []
    for start in range(0, len(images), batch):
        part = images[start : start + batch]
        try:
            outputs = ask(part)
        except Exception as error:
            text = " ".join(str(error).split())
            raise ValueError(
                f"model {FAILED} {len(part)} images of {part.dtype} {part.shape[1:]}: {type(error).__name__}: "
                f"{text[:300]}"
            ) from None
        numbers = _as_numbers(_choose_logits(outputs, len(part), classes))
        if numbers.ndim not in (1, 2) or len(numbers) != len(part):
            raise ValueError(f"model gives {numbers.shape} for {len(part)} images; expected ({len(part)}, classes)")
        parts.append(numbers)
    widths = {part.shape[1:] for part in parts}
    if len(widths) > 1:
        raise ValueError(
            f"model gives {', '.join(map(str, sorted(widths)))} numbers an image; expected as many for all"
        )
    logits = np.concatenate(parts)
    columns = max(logits.shape[1], 2) if logits.ndim == 2 else 2  # one logit is that of the second class
    if columns < classes:
        raise ValueError(f"model gives {columns} classes, and the labels reach up to {classes - 1}")
    return logits


def _choose_logits(outputs: Any, rows: int, classes: int) -> Any:
    """The logits among what a model gives: `.logits`, an entry of that name, or the only output (rows, classes).

    Raises ValueError, naming the outputs with their shapes, if there are several of that shape or none.
    """
    if getattr(outputs, "logits", None) is not None:
        return outputs.logits
    if isinstance(outputs, Mapping):
        named = {str(name): value for name, value in outputs.items()}
        if "logits" in named:
            return named["logits"]
    elif isinstance(outputs, tuple | list) and any(hasattr(each, "shape") for each in outputs):
        named = {str(number): value for number, value in enumerate(outputs)}
    else:
        return outputs
    fitting = [value for value in named.values() if _could_be_logits(value, rows, classes)]
    if len(fitting) == 1:
        return fitting[0]
    if len(named) == 1:
        return next(iter(named.values()))
    shown = ", ".join(f"{name} {tuple(getattr(value, 'shape', ())) or '(no array)'}" for name, value in named.items())
    raise ValueError(
        f"model gives {len(named)} outputs: {shown}; pass a function that gives the logits alone, such as lambda "
        f"images: model(images)[{next(iter(named))!s}]"
    )


def _could_be_logits(value: Any, rows: int, classes: int) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    return len(shape) == 2 and shape[0] == rows and shape[1] >= max(classes, 2)


def _as_numbers(value: Any) -> Floats:
    """An output as float64 in this machine's memory, also from half precisions."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    if hasattr(value, "is_floating_point") and value.is_floating_point():
        value = value.double()
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "biuf":
            raise TypeError(f"of {numbers.dtype}")
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise ValueError(f"model gives a {type(value).__name__}, which is no array of numbers: {text}") from None
    return numbers.astype(np.float64)
