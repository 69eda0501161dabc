import os
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from tasks import hardware

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert hardware.keep_freed_memory()
for step in range(40):
    if step == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**20) for _ in range(8)]  # 4 MiB each
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    # Whether glibc gives back such blocks unasked depends on what else lies on the heap; so it is told to.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, env=env)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's way with freed memory")
def test_freed_memory_is_used_again_without_being_asked_for_page_by_page() -> None:
    kept, given_back = faults("keep"), faults("give back")
    assert given_back > 30 * 8 * 2**20 * 4 / 4096 / 2  # half of the pages at least
    assert kept < given_back / 100  # none of them, but what a system short of memory takes away
