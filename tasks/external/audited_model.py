"""The model that `engram.audit` accepts: a torch module, a function or a file. It is evaluated to logits.

Images are passed in a form that the model accepts: unchanged, scaled to [0, 1], or with channels first. If it accepts
several forms, the one with the lowest loss on the labels of both sets is used.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import ONE_PIXEL
from tasks.external.audit_inputs import BYTE, Records, RecordSet, is_bytes
from tasks.external.image_shape import channel_axis
from tasks.external.outputs import check_asked_twice, check_class_order, other_batch, read_answers
from tasks.models.estimators import log_probabilities

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ask = Callable[[Array], Any]

WHERE = "model"
FAILED = "failed on"
LOGITS = "pass a function that returns logits, such as lambda images: model(images).log()"
EXPECTED = "a torch module, a function of a batch of images, a scikit-learn estimator, or the path of a model file"


@dataclass(frozen=True)
class Form:
    """A conversion of images for a model, and its description. The description is empty for unchanged images."""

    description: str
    apply: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a model for one set, (records,) each: log p of the label in nats, and whether it is the largest.

    `correct` is None if it is unknown.
    """

    log_p: Floats
    correct: NDArray[np.bool_] | None


def score_labels(log_p: Floats, labels: NDArray[np.int64]) -> Scores:
    """Return the scores from log-probabilities (records, classes)."""
    label_log_p: Floats = log_p[np.arange(len(labels)), labels]
    return Scores(label_log_p, label_log_p == log_p.max(axis=1))


def ask_model(
    model: Any, sets: tuple[RecordSet, RecordSet], batch: int
) -> tuple[tuple[Scores, Scores], tuple[RecordSet, RecordSet]]:
    """Score the records of both sets. Also return the sets in the form that the model accepts.

    Raises ValueError if the model fails, does not return logits, or returns two different results for the same image.
    """
    classes = int(max(records.labels.max() for records in sets)) + 1
    with _open_model(model, sets, classes, batch) as ask:
        formed = _choose_forms(ask, sets, classes, batch)
        answers = [_log_p(ask, records.images, classes, batch) for records in formed]
        half = other_batch(answers[0][:batch])
        repeated_answers = _log_p(ask, formed[0].images[half], classes, batch)
    check_asked_twice(answers[0][half], repeated_answers, WHERE, "call model.eval() first, also inside a function")
    return check_and_score(answers, formed, WHERE, "number the labels in its order"), formed


def ask_images(model: Any, known: RecordSet, images: Array, classes: int, batch: int) -> Floats:
    """Return the log-probabilities (images, classes) of a model for images without labels.

    The labels of the known records, which have the same form, determine the form that the model accepts.

    Raises ValueError if the model fails, does not return logits, or returns two different results for the same image.
    """
    with _open_model(model, (known, known), classes, batch) as ask:
        form = _choose_form(ask, [known], classes, batch)

        def ask_in_form(part: Array) -> Any:
            return ask(np.ascontiguousarray(form.apply(part)))

        log_p = _log_p(ask_in_form, images, classes, batch)
        half = other_batch(log_p[:batch])
        repeated_answers = _log_p(ask_in_form, images[half], classes, batch)
    check_asked_twice(log_p[half], repeated_answers, WHERE, "call model.eval() first, also inside a function")
    return log_p


def check_and_score(
    answers: Sequence[Floats], sets: tuple[RecordSet, RecordSet], where: str, remedy: str
) -> tuple[Scores, Scores]:
    """Return the scores of both sets from log-probabilities (records, classes), members first.

    Raises ValueError, which begins with `where` and ends with `remedy`, if the classes are in another order. If the
    model generalises, both sets reveal the order of its classes; if it memorises, only the members do.
    """
    for count in (2, 1):
        labels = np.concatenate([records.labels for records in sets[:count]])
        check_class_order(np.concatenate(answers[:count]), labels, where, remedy)
    first, second = (score_labels(log_p, records.labels) for log_p, records in zip(answers, sets, strict=True))
    return first, second


@contextlib.contextmanager
def _open_model(model: Any, sets: tuple[RecordSet, RecordSet], classes: int, batch: int) -> Iterator[Ask]:
    if isinstance(model, str | Path):
        yield _file_model(str(model), sets[0].images, classes, batch)
    elif _is_module(model):
        with _evaluation_mode(model) as ask:
            yield ask
    elif hasattr(model, "predict_proba") and not isinstance(model, type):
        yield _estimator_model(model)
    elif callable(model) and not isinstance(model, type):
        yield _function_model(model)
    else:
        is_class = isinstance(model, type)
        if is_class:
            kind = f"the class {model.__name__}"
        else:
            kind = f"a {type(model).__name__}"
        raise ValueError(f"model is {kind}; expected {EXPECTED}")


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")  # if torch has not been imported, the model cannot be a torch module
    return torch is not None and isinstance(model, torch.nn.Module)


@contextlib.contextmanager
def _evaluation_mode(model: Any) -> Iterator[Ask]:
    """Put a module into evaluation mode and restore the previous modes afterwards."""
    import torch

    weights = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), torch.zeros(0))
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
    """Wrap a function that takes arrays, or tensors if it rejects arrays."""

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


def _estimator_model(model: Any) -> Ask:
    """Wrap a scikit-learn estimator, which returns probabilities of the classes that it was trained on."""

    def ask(images: Array) -> Any:
        p = np.asarray(model.predict_proba(images.reshape(len(images), -1)), np.float64)
        known = np.asarray(model.classes_)
        if known.dtype.kind not in "iu" or not np.array_equal(known, np.arange(len(known))):
            raise ValueError(f"its classes are {known[:5].tolist()}; expected class numbers from 0, without gaps")
        return log_probabilities(p)

    return ask


def _file_model(name: str, images: Records, classes: int, batch: int) -> Ask:
    """Load a model file as in every other audit, for images in [0, 1] of shape (channels, height, width)."""
    from tasks.external.loading import load_model
    from tasks.external.model_file import Interface, ModelFile, pin

    if len(images.shape) == 2:
        return _file_model_of_rows(name, images, classes, batch)
    if len(images.shape) not in (3, 4):
        raise ValueError(f"model {name} takes images, but the records have shape {images.shape[1:]}")
    shape = _image_shape(images)
    loaded_model = load_model(pin(ModelFile.parse(name)), shape, Interface(batch=batch), classes)

    def ask(part: Array) -> Any:
        pixels = np.asarray(part, np.float32)
        if pixels.ndim != 4 or pixels.shape[1:] != (shape[2], *shape[:2]):
            raise ValueError(f"it takes images of {(shape[2], *shape[:2])}, not {pixels.shape[1:]}")
        pixels = pixels.transpose(0, 2, 3, 1)
        rows = range(0, len(pixels), loaded_model.rows)
        return np.concatenate([loaded_model.raw_fractions(pixels[start : start + loaded_model.rows]) for start in rows])

    return ask


def _file_model_of_rows(name: str, rows: Records, classes: int, batch: int) -> Ask:
    """Load a model file for rows of a table (n, features)."""
    from tasks.external.loading import load_model
    from tasks.external.model_file import Interface, ModelFile, pin

    shape = (*ONE_PIXEL, rows.shape[1])
    loaded_model = load_model(pin(ModelFile.parse(name)), shape, Interface(batch=batch), classes)

    def ask(part: Array) -> Any:
        values: Any = np.asarray(part, np.float32).reshape(len(part), *shape)
        starts = range(0, len(values), loaded_model.rows)
        return np.concatenate([loaded_model.raw(values[start : start + loaded_model.rows]) for start in starts])

    return ask


def _image_shape(images: Records) -> tuple[int, int, int]:
    """Return the height, width and channels of images whose channels are first, last or absent."""
    sizes = images.shape[1:]
    if len(sizes) == 2:
        return sizes[0], sizes[1], 1
    if _has_channels_last(images):
        return sizes[0], sizes[1], sizes[2]
    return sizes[1], sizes[2], sizes[0]


def _has_channels_last(images: Records) -> bool:
    return len(images.shape) == 4 and channel_axis(images.shape[1:]) == 2


def _forms(images: Records) -> list[Form]:
    """Return the possible forms of these images, with unchanged images first."""
    layouts = [Form("", lambda batch: batch)]
    if _has_channels_last(images):
        layouts.append(Form("their channels were moved to the front", lambda batch: batch.transpose(0, 3, 1, 2)))
    if len(images.shape) == 3:
        layouts.append(Form("an axis of one channel was added", lambda batch: batch[:, None]))
    if not is_bytes(images):
        return layouts
    scaled = []
    for layout in layouts:
        description = "they were scaled from [0, 255] to [0, 1]"
        if layout.description:
            combined_description = f"{description}, and {layout.description}"
        else:
            combined_description = description
        scaled.append(Form(combined_description, _then_scale(layout.apply)))
    return [*layouts, *scaled]


def _then_scale(apply: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def scaled(images: Array) -> Array:
        return np.divide(apply(images), BYTE, dtype=np.float32)

    return scaled


def _choose_forms(ask: Ask, sets: tuple[RecordSet, RecordSet], classes: int, batch: int) -> tuple[RecordSet, RecordSet]:
    """Return the sets in the form that suits the model best. If shape and scale agree, both have the same form."""
    first = _choose_form(ask, [sets[0], sets[1]] if _are_alike(*sets) else [sets[0]], classes, batch)
    if _are_alike(*sets):
        second = first
    else:
        second = _choose_form(ask, [sets[1]], classes, batch)
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
    notes = (*records.notes, f"{name}: the model does not accept images in this form, so {form.description}")
    return replace(records.convert(lambda images: np.ascontiguousarray(form.apply(images))), notes=notes)


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
    if not losses:  # an error about outputs is more helpful than one about a failed call
        raise next((error for error in errors if FAILED not in str(error)), errors[0])
    return forms[min(losses, key=lambda number: losses[number])]


def _mean_loss(ask: Ask, form: Form, records: RecordSet, classes: int, batch: int) -> float:
    labels = records.labels[:batch]
    log_p = _log_p(ask, np.ascontiguousarray(form.apply(records.images[:batch])), classes, batch)
    return -float(log_p[np.arange(len(labels)), labels].mean())


def _log_p(ask: Ask, images: Records, classes: int, batch: int) -> Floats:
    logits = _all_logits(ask, images, classes, batch)
    return read_answers(logits, "logits", len(logits), where=WHERE, remedy=LOGITS).log_p


def _all_logits(ask: Ask, images: Records, classes: int, batch: int) -> Floats:
    """Evaluate the model on all images in batches. Raises ValueError if it fails."""
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
            raise ValueError(f"model returns {numbers.shape} for {len(part)} images; expected ({len(part)}, classes)")
        parts.append(numbers)
    widths = {part.shape[1:] for part in parts}
    if len(widths) > 1:
        raise ValueError(
            f"model returns {', '.join(map(str, sorted(widths)))} numbers per image; expected the same number for all"
        )
    logits = np.concatenate(parts)
    columns = max(logits.shape[1], 2) if logits.ndim == 2 else 2  # a single logit belongs to the second class
    if columns < classes:
        raise ValueError(f"model returns {columns} classes, but the labels reach up to {classes - 1}")
    return logits


def _choose_logits(outputs: Any, rows: int, classes: int) -> Any:
    """Return the logits among the outputs: `.logits`, an entry with this name, or the only output (rows, classes).

    Raises ValueError, with the shapes of the outputs, unless exactly one output has that shape.
    """
    if getattr(outputs, "logits", None) is not None:
        return outputs.logits
    if isinstance(outputs, Mapping):
        outputs_by_name = {str(name): value for name, value in outputs.items()}
        if "logits" in outputs_by_name:
            return outputs_by_name["logits"]
    elif isinstance(outputs, tuple | list) and any(hasattr(output, "shape") for output in outputs):
        outputs_by_name = {str(number): value for number, value in enumerate(outputs)}
    else:
        return outputs
    fitting = []
    for value in outputs_by_name.values():
        if _could_be_logits(value, rows, classes):
            fitting.append(value)
    if len(fitting) == 1:
        return fitting[0]
    if len(outputs_by_name) == 1:
        return next(iter(outputs_by_name.values()))
    listing = ", ".join(
        f"{name} {tuple(getattr(value, 'shape', ())) or '(no array)'}" for name, value in outputs_by_name.items()
    )
    raise ValueError(
        f"model returns {len(outputs_by_name)} outputs: {listing}; pass a function that returns only the logits, such "
        f"as lambda images: model(images)[{next(iter(outputs_by_name))!s}]"
    )


def _could_be_logits(value: Any, rows: int, classes: int) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    return len(shape) == 2 and shape[0] == rows and shape[1] >= max(classes, 2)


def _as_numbers(value: Any) -> Floats:
    """Convert an output, which may be in half precision, to a float64 array in main memory."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    if hasattr(value, "is_floating_point") and value.is_floating_point():
        value = value.double()
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "biuf":
            raise TypeError(f"of {numbers.dtype}")
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise ValueError(f"model returns a {type(value).__name__}; expected an array of numbers: {text}") from None
    return numbers.astype(np.float64)
