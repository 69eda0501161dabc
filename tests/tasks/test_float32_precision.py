import subprocess
import sys
from collections.abc import Mapping
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


# Each way is asked for by a child of its own, because these settings leave traces in torch.
SCRIPT = """
import os, sys, traceback
import torch
from tasks.hardware import full_float32

def asked():
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:
        legacy = "contradicting"
    return legacy, torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision

def check(way):
    exec(way)
    before = asked()
    try:
        with full_float32():
            assert ("highest", "ieee", "ieee") == asked(), asked()
            assert not torch.backends.cuda.matmul.allow_tf32
            raise KeyError("inside")
    except KeyError:
        pass
    assert before == asked(), (before, asked())

for way in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            check(way)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def statuses() -> Mapping[str, tuple[int, str]]:
    """How the check of each way ended, and what was said by all."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *ASKED.values()], capture_output=True, text=True, cwd=ROOT)
    assert 0 == done.returncode, done.stderr
    return {name: (int(status), done.stderr) for name, status in zip(ASKED, done.stdout.split(), strict=True)}


@pytest.mark.parametrize("asked", ASKED)
def test_products_are_exact_inside_and_as_the_user_asked_afterwards(
    asked: str, statuses: Mapping[str, tuple[int, str]]
) -> None:
    status, said = statuses[asked]
    assert 0 == status, said
