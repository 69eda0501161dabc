import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASKED = {
    "nothing": "",
    "the old way": "torch.set_float32_matmul_precision('medium')",
    "the GPU's new way": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "the CPU's new way": "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "both ways": "torch.set_float32_matmul_precision('high'); torch.backends.cuda.matmul.fp32_precision = 'ieee'",
    "everything": "torch.backends.fp32_precision = 'tf32'",
    "the oldest way": "torch.backends.cuda.matmul.allow_tf32 = True",
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_products_are_exact_inside_and_as_the_user_asked_afterwards(asked: str) -> None:
    """In a process of its own, because these settings leave traces in torch."""
    script = f"""
import torch
from tasks.precision import full_float32

def asked():
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:
        legacy = "contradicting"
    return legacy, torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision

{asked}
before = asked()
try:
    with full_float32():
        assert ("highest", "ieee", "ieee") == asked(), asked()
        assert not torch.backends.cuda.matmul.allow_tf32
        raise KeyError("inside")
except KeyError:
    pass
assert before == asked(), (before, asked())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert 0 == done.returncode, done.stderr
