"""Run ONNX models with onnxruntime in a child process that has limited memory.

An ONNX file of 3 kB can request 40 GB of memory. The child loads the model and evaluates one batch at a time. If it
exceeds the memory limit of `tasks.worker.confined` or dies, the caller receives an error message. The child ends when
its parent process ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tasks.worker import confined

Array = NDArray[np.floating]
DIED = "it exceeded the memory limit or crashed onnxruntime"
LONGEST = 2000  # characters of an error message
LENGTH = struct.Struct("<Q")


def is_installed() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


@dataclass(frozen=True)
class Argument:
    """An input of a model: its name, type and shape, as reported by onnxruntime."""

    name: str
    type: str
    shape: tuple[Any, ...]


class OnnxSession:
    """A model in a child process. Raises ValueError, without the model's name, if the model cannot be read."""

    def __init__(self, model_bytes: bytes) -> None:
        alive, self._life = os.pipe()
        try:
            self._child = subprocess.Popen(
                confined.command("tasks.external.onnx_session:serve"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[alive],
                env=confined.environment(),
            )
        finally:
            os.close(alive)
        self._end = weakref.finalize(self, _end, self._child, self._life)
        request = {"limit": confined.memory_limit(), "alive": alive}
        reply = self._ask(json.dumps(request).encode(), model_bytes)
        self.inputs = tuple(
            Argument(argument["name"], argument["type"], tuple(argument["shape"])) for argument in reply["inputs"]
        )

    def run(self, images: Array) -> dict[str, Any]:
        """Return the outputs by name. Raises ValueError if the model fails."""
        reply = self._ask(_as_bytes(images))
        assert self._child.stdout is not None
        outputs: dict[str, Any] = {}
        for name, kind in reply["outputs"]:
            if kind == "array":
                outputs[name] = _from_bytes(_read(self._child.stdout))
            else:
                outputs[name] = Other(kind)
        return outputs

    def _ask(self, *parts: bytes) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            for part in parts:
                _write(self._child.stdin, part)
            reply: dict[str, Any] = json.loads(_read(self._child.stdout))
        except (OSError, EOFError):
            raise ValueError(f"{DIED}: {confined.describe_limit()}") from None
        if reply.get("error"):
            raise ValueError(reply["error"])
        return reply


@dataclass(frozen=True)
class Other:
    """The class name of an output that is not an array."""

    kind: str


def _end(child: subprocess.Popen[bytes], life: int) -> None:
    os.close(life)
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    child.wait()


def _write(file: Any, part: bytes) -> None:
    file.write(LENGTH.pack(len(part)))
    file.write(part)
    file.flush()


def _read(file: Any) -> bytes:
    head = file.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (size,) = LENGTH.unpack(head)
    if size > confined.memory_limit():
        raise EOFError
    part: bytes = file.read(size)
    if len(part) < size:
        raise EOFError
    return part


def _as_bytes(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _from_bytes(array_bytes: bytes) -> Array:
    array: Array = np.load(io.BytesIO(array_bytes), allow_pickle=False)
    return array


# The following functions run in the child.


def serve() -> None:
    """Load a model from standard input and evaluate batches until the input or the parent process ends."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the library's output separate from the answers
    request = json.loads(_read(requests))
    model_bytes = _read(requests)
    threading.Thread(target=_end_with_parent, args=(request["alive"],), daemon=True).start()
    try:
        import onnxruntime

        confined.limit_memory(request["limit"])
        session = _open(onnxruntime, model_bytes)
        del model_bytes
        inputs = []
        for argument in session.get_inputs():
            inputs.append({"name": argument.name, "type": argument.type, "shape": argument.shape})
        _write(answers, json.dumps({"inputs": inputs}).encode())
        names = [output.name for output in session.get_outputs()]
        while True:
            _answer(session, inputs, names, _read(requests), answers)
    except EOFError:
        return
    except Exception as error:
        _write(answers, json.dumps({"error": _line(error)}).encode())


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


def _open(onnxruntime: Any, model_bytes: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised instead
    with tempfile.TemporaryDirectory() as empty_folder:
        # The model comes from memory and can only refer to an empty folder, so it cannot read files on this machine.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", empty_folder)
        return onnxruntime.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])


def _answer(session: Any, inputs: list[dict[str, Any]], names: list[str], images: bytes, answers: BinaryIO) -> None:
    try:
        outputs = session.run(names, {inputs[0]["name"]: _from_bytes(images)})
    except Exception as error:
        _write(answers, json.dumps({"error": _line(error)}).encode())
        return
    is_array = [isinstance(output, np.ndarray) and not output.dtype.hasobject for output in outputs]
    kinds = ["array" if plain else type(output).__name__ for plain, output in zip(is_array, outputs, strict=True)]
    _write(answers, json.dumps({"outputs": list(zip(names, kinds, strict=True))}).encode())
    for plain, output in zip(is_array, outputs, strict=True):
        if plain:
            _write(answers, _as_bytes(output))


def _line(error: Exception) -> str:
    if isinstance(error, MemoryError) or "bad_alloc" in str(error) or "Failed to allocate memory" in str(error):
        return f"it exceeds the memory limit: {confined.describe_limit()}"
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if len(lines) > 3 else " ".join(lines)
    return f"{type(error).__name__}: {text}"[:LONGEST]
