"""Load networks from weight files: the user's own network, a timm network, or a transformers classifier.

Only tensors are read from weight files. A transformers classifier is loaded from the bytes of its folder, without
downloading anything or running its code.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.contract.extras import TIMM, TRANSFORMERS
from tasks.external.checkpoint_weights import Weights, choose_weights, describe_contents, find_weights
from tasks.external.file_contents import drop_wrappers, holds_tensors_alone, is_stored_tensor, no_weights
from tasks.external.inert_pickle import SavedFile, Unreadable, open_saved, read_tensor
from tasks.external.model_file import ModelFile
from tasks.models import custom, modules
from tasks.models.catalog import input_shape
from tasks.models.custom import Factory
from tasks.models.factory_import import import_factory
from tasks.user_code.loaded import UncoveredImport, watch_imports


def load_weights(
    model: ModelFile, model_bytes: bytes, module: torch.nn.Module, target_device: torch.device
) -> Callable[[Tensor], Any]:
    """Load the weights in the file into the network, in evaluation mode."""
    network = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    left_out = None
    if model.timm is not None:
        left_out = _classifier_names(module)
    where = f"model {model.name}: {model.path}"
    saved, mappings = _read_weights(model, model_bytes)
    try:
        state_dict = choose_weights(where, network, mappings, model.part, left_out)
        if saved is not None:
            state_dict = {name: read_tensor(saved, tensor) for name, tensor in state_dict.items()}
    except Unreadable as error:
        raise ValueError(f"{where} cannot be read: {error}") from None
    try:
        module.load_state_dict(state_dict)
    except Exception as error:
        if model.timm is None:
            network_name = "the factory's network"
        else:
            network_name = f"timm's {model.timm}"
        reason = " ".join(_lines(error))[:LONGEST]
        raise ValueError(f"model {model.name}: the weights do not fit {network_name}: {reason}") from None
    return module.to(target_device).eval()


def make_network(model: ModelFile, shape: tuple[int, int, int], classes: int | None) -> torch.nn.Module:
    factory = model.factory
    assert isinstance(factory, Factory)
    if classes is None:
        raise ValueError(f"model {model.name} is made by a factory, which requires the number of classes")
    make = import_factory(factory)
    try:
        with watch(factory):
            module = make(input_shape(shape), classes)
    except UncoveredImport:
        raise
    except Exception as error:
        raise ValueError(f"network {factory}: its factory failed: {one_line(error)}") from error
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"network {factory}: its factory made a {modules.kind(module)}; expected a torch.nn.Module")
    return module


def watch(factory: Factory) -> AbstractContextManager[None]:
    """Raise UncoveredImport if the block imports a user's file that the factory's digest does not cover."""
    return watch_imports(f"network {factory}", custom.source_files(factory))


def watch_first_call(factory: Factory, module: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Wrap a module so that its first call runs inside `watch`."""
    is_called = False

    def call(images: Tensor) -> Any:
        nonlocal is_called
        if is_called:
            return module(images)
        with watch(factory):
            outputs = module(images)
        is_called = True
        return outputs

    return call


def network_of_timm(model: ModelFile, shape: tuple[int, int, int], classes: int | None) -> torch.nn.Module:
    """Create timm's network with the model's name and random weights. With 0 classes, it has no classifier."""
    try:
        import timm
    except ImportError:
        raise ValueError(f"model {model.name} needs {TIMM.advice}") from None
    assert model.timm is not None
    if classes is None:
        raise ValueError(f"model {model.name} is a network of timm, which requires the number of classes")
    try:
        network = timm.create_model(model.timm, pretrained=False, num_classes=classes, in_chans=shape[2])
    except Exception as error:
        raise ValueError(f"model {model.name}: timm cannot make {model.timm}: {one_line(error)}") from None
    assert isinstance(network, torch.nn.Module)
    return network


def _classifier_names(module: Any) -> Callable[[str], bool] | None:
    """Return a test for names of the classifier that timm's network was created without.

    Returns None if the network has its classifier.
    """
    if module.num_classes:
        return None
    classifier = module.default_cfg.get("classifier") or ()
    prefixes = tuple(f"{name}." for name in ((classifier,) if isinstance(classifier, str) else classifier))

    def is_of_classifier(name: str) -> bool:
        return name.startswith(prefixes)

    return is_of_classifier


def _read_weights(model: ModelFile, model_bytes: bytes) -> tuple[SavedFile | None, list[Weights]]:
    """Return the tensor mappings in a weight file, and the file itself if its tensors are only described."""
    suffix = PurePath(model.path).suffix.lower()
    if suffix == ".npz":
        return None, [Weights("", _npz(model, model_bytes))]
    if suffix == ".safetensors":
        return None, [Weights("", _safetensors(model, model_bytes))]
    return _saved(model, model_bytes)


def _saved(model: ModelFile, model_bytes: bytes) -> tuple[SavedFile | None, list[Weights]]:
    """Return the tensor mappings in a state dict or checkpoint.

    torch reads files that contain only tensors and plain containers. From other files, only the tensors are read,
    without importing the names in their pickles.
    """
    where = f"model {model.name}: {model.path}"
    if not holds_tensors_alone(model_bytes):
        try:
            saved = open_saved(model_bytes)
        except Unreadable as error:
            raise ValueError(f"{where} cannot be read: {error}") from None
        mappings = find_weights(saved.contents, is_stored_tensor)
        if not mappings:
            raise ValueError(no_weights(model.name, model.path, saved.contents))
        return saved, mappings
    try:
        contents = torch.load(io.BytesIO(model_bytes), map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{where} cannot be read: {one_line(error)}") from None
    mappings = find_weights(contents, is_tensor)
    if not mappings:
        raise ValueError(f"{where} contains no weights by name: {describe_contents(contents, is_tensor)}")
    return None, mappings


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _npz(model: ModelFile, model_bytes: bytes) -> Mapping[str, Tensor]:
    try:
        with np.load(io.BytesIO(model_bytes), allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name].copy()) for name in arrays.files}
    except Exception as error:
        raise ValueError(f"model {model.name}: {model.path} is not a .npz of numbers: {one_line(error)}") from None


def _safetensors(model: ModelFile, model_bytes: bytes) -> Mapping[str, Tensor]:
    from safetensors.torch import load

    try:
        return load(model_bytes)
    except Exception as error:
        raise ValueError(f"model {model.name}: {model.path} is not a valid .safetensors: {one_line(error)}") from None


def load_classifier(name: str, contents: Mapping[str, bytes], target_device: torch.device) -> Callable[[Tensor], Any]:
    """Load a classifier in evaluation mode. It maps images (n, c, h, w) to transformers outputs, which include logits.

    Raises ValueError if transformers cannot read it, or if weights are missing, which transformers would initialise at
    random.
    """
    try:
        from transformers import AutoModelForImageClassification
    except ImportError:
        raise ValueError(f"model {name} needs {TRANSFORMERS.advice}") from None
    with tempfile.TemporaryDirectory() as folder, silence_transformers(), torch.random.fork_rng(devices=[]):
        for file, content in contents.items():  # only the pinned files of the folder
            (Path(folder) / file).write_bytes(drop_wrappers(file, content))
        try:
            module, info = AutoModelForImageClassification.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except Exception as error:
            reason = one_line(error).replace(folder, "the folder")
            raise ValueError(f"model {name} cannot be read by transformers: {reason}") from None
    lacking = sorted(map(str, info["missing_keys"]))
    if lacking:
        raise ValueError(f"model {name} lacks {len(lacking)} of its weights, such as {lacking[0]}")
    module.to(target_device).eval()

    def classify(images: Tensor) -> Any:
        return module(pixel_values=images, return_dict=True)

    return classify


@contextlib.contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence advice and progress bars of transformers and peft. Errors are still raised."""
    from transformers.utils import logging as told

    level = told.get_verbosity()
    bars = told.is_progress_bar_enabled()
    told.set_verbosity(told.CRITICAL)
    told.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()


LONGEST = 300  # characters of a library's error message


def one_line(error: Exception) -> str:
    """Format a library's error on one line. Of long messages, such as C++ tracebacks, only the last line is kept."""
    lines = list(_lines(error))
    text = lines[-1] if len(lines) > 3 else " ".join(lines)
    return f"{modules.kind(error)}: {text}"[:LONGEST]


def _lines(error: Exception) -> Iterator[str]:
    return (" ".join(line.split()) for line in str(error).splitlines() if line.strip())
