"""An archive is read only if reading it runs no code."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch

from tasks.external.archives import Refused, check, is_expression, program


class Sums(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.dense(x)) + x.sum()


def plain(**parts: Any) -> dict[str, bytes]:
    return {"models/model.json": json.dumps(parts).encode()}


def test_plain_model_is_read_with_same_outputs() -> None:
    model = Sums().eval()
    archive = io.BytesIO()
    torch.export.save(torch.export.export(model, (torch.ones(4, 3),)), archive)
    x = torch.rand(4, 3)
    assert torch.equal(model(x), program(archive.getvalue()).module()(x))


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.add.Tensor",
        "torch.ops.aten.__and__.Tensor",
        "torch.ops.torchvision.nms.default",
        "torch.ops.higher_order.cond",
        "torch.sym_max",
        "_operator.getitem",
        "math.floor",
    ],
)
def test_torch_operators_are_accepted(target: str) -> None:
    check(plain(nodes=[{"target": target}]))


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "torch.ops.aten.from_file.default",
        "torch.ops.mine.add.default",
        "torch.hub.load",
        "torch.ops.aten.__class__.add",
        "operator.call",
        "operator.attrgetter",
        "math.floor.x",
        "torch.ops.aten.add.Tensor; import os",
        "",
    ],
)
def test_other_operators_are_refused(target: str) -> None:
    with pytest.raises(Refused, match="which is not an operator of torch"):
        check(plain(nodes=[{"target": target}]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s0", True),
        ("2*s0 + 1", True),
        ("Max(1, s12)", True),
        ("FloorDiv(s0, 2)", True),
        ("Symbol('s77', positive=True, integer=True)", True),
        ("Float('0.5')", False),
        ("1.5*u0", True),
        ("__import__('os').system('true')", False),
        ("s0.__class__", False),
        ("open('x')", False),
        ("lambda: 0", False),
        ("[s0]", False),
    ],
)
def test_sizes_allow_only_arithmetic(text: str, expected: bool) -> None:
    assert expected == is_expression(text)
    if expected:
        check(plain(size={"expr_str": text}))
    else:
        with pytest.raises(Refused, match="which is not a plain expression"):
            check(plain(size={"expr_str": text}))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ({}, "it contains no program called model"),
        (plain() | {"data/aotinductor/model.so": b""}, r"it contains compiled code \(AOTInductor\)"),
        (plain(name="x):\n  import os"), "which is not a plain name"),
        (plain(**{"a b": 1}), "has the name 'a b', which is not a plain name"),
        (plain(in_spec=json.dumps([1, {"type": "builtins.tuple", "context": "null"}])), None),
        (
            plain(in_spec=json.dumps([1, {"type": "os.PathLike", "context": "null"}])),
            "takes or returns a 'os.PathLike'",
        ),
        (plain(out_spec=json.dumps([1, {"type": "builtins.dict", "context": '["a", "b"]'}])), None),
        (
            plain(out_spec=json.dumps([1, {"type": "builtins.dict", "context": "[x()]"}])),
            r"takes or returns a '\[x\(\)\]'",
        ),
        (plain(metadata={"stack_trace": "File x, line 1: import os; os.system()"}), None),  # recorded but never read
        (plain() | {"data/sample_inputs/model.pt": b"cposix\nsystem\n(S'true'\ntR."}, "would have to be unpickled"),
    ],
)
def test_unsafe_archives_are_refused(records: dict[str, bytes], message: str | None) -> None:
    if message is None:
        check(records)
        return
    with pytest.raises(Refused, match=message):
        check(records)


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({"path_name": "weight_0", "use_pickle": False}, False),
        ({"path_name": "weight_0", "use_pickle": True}, True),
        ({"path_name": "custom_obj_0", "use_pickle": False}, True),
        ({"path_name": "../weight_0", "use_pickle": False}, True),
    ],
)
def test_pickled_weights_are_refused(entry: dict[str, Any], refused: bool) -> None:
    config = {"data/weights/model_weights_config.json": json.dumps({"config": {"dense.weight": entry}}).encode()}
    if not refused:
        check(plain() | config)
        return
    with pytest.raises(
        Refused, match=r"dense.weight in data/weights/model_weights_config.json would have to be unpickled"
    ):
        check(plain() | config)
