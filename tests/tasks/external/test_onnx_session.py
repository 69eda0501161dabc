"""An ONNX model can allocate any amount of memory, so it runs in a child process with a limit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tasks.external import loading
from tasks.external.model_file import ModelFile, pin
from tasks.external.onnx_session import OnnxSession
from tasks.worker import confined
from tests.support.waiting import HANGING

onnx = pytest.importorskip("onnx")


def save_bomb(path: Path, rows: int) -> Path:
    """A model of a few kB that allocates this number of floats for every batch."""
    from onnx import TensorProto, helper

    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1, 8, 8])
    logits = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 64])
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [rows, 1])
    nodes = [
        helper.make_node("Constant", [], ["s"], value=shape),
        helper.make_node(
            "ConstantOfShape", ["s"], ["big"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
        ),
        helper.make_node("ReduceMean", ["big"], ["m"], keepdims=0),
        helper.make_node("Flatten", ["x"], ["f"], axis=1),
        helper.make_node("Sub", ["f", "m"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "bomb", [images], [logits])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_memory_limit_gives_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(confined.VARIABLE, "1.5GB")
    images = np.zeros((3, 8, 8, 1), np.uint8)
    images[1:] += 7
    small = pin(ModelFile(str(save_bomb(tmp_path / "small.onnx", 10))))
    assert loading.log_probabilities(small, images).log_p.shape == (3, 64)
    bomb = pin(ModelFile(str(save_bomb(tmp_path / "bomb.onnx", 10**9))))
    with pytest.raises(ValueError, match=r"bomb\.onnx .*exceeds the memory limit.*a file may take 1,500 MB") as refused:
        loading.log_probabilities(bomb, images)
    assert "\n" not in str(refused.value)


def test_child_ends_with_its_session(tmp_path: Path) -> None:
    session = OnnxSession(save_bomb(tmp_path / "small.onnx", 10).read_bytes())
    outputs = session.run(np.zeros((2, 1, 8, 8), np.float32))
    assert outputs["y"].shape == (2, 64)
    child = session._child
    del session
    gc.collect()
    assert child.wait() is not None


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_child_ends_with_its_parent_process(tmp_path: Path) -> None:
    path = save_bomb(tmp_path / "small.onnx", 10)
    script = (
        "import os, pathlib, sys; from tasks.external.onnx_session import OnnxSession\n"
        "session = OnnxSession(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "print(session._child.pid, flush=True); os._exit(0)"
    )
    command = [sys.executable, "-c", script, str(path)]
    child = int(subprocess.run(command, capture_output=True, check=True, timeout=HANGING).stdout)
    for _ in range(200):
        if not is_running(child):
            return
        time.sleep(0.05)
    pytest.fail("the child is still running")
