"""The numbers that pin versions of tasks do not depend on the rounding of one processor.

In each setting, a process computes as on another processor and runs the version tests that are marked
`trained` with several roundings. Other tests with this mark take minutes and run in one setting.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARK = "pytest.mark.trained"
ALL = "AVX2"  # the setting with all marked tests
# oneDNN limited to AVX2 aborts in the gradient of a convolution (PyTorch 2.15, AMD EPYC), so it is limited to
# AVX-512, where it computes as on this processor, or SSE. MKL, which only torch for x86-64 has, obeys
# MKL_ENABLE_INSTRUCTIONS on Intel's processors alone.
SETTINGS = {
    "this processor": ({}, ("onednn on 2 threads", "noise")),
    "AVX2": (
        {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        ("torch",),
    ),
    "SSE": (
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
        ("torch on 2 threads", "onednn"),
    ),
}


def run_trained_tests(paths: list[Path], surroundings: dict[str, str], roundings: tuple[str, ...]) -> tuple[int, str]:
    """The exit code and the output of pytest over these files' tests of trainings.

    It runs in this process, which has imported torch, unless torch must be loaded with other variables.
    """
    arguments = ["-q", "-m", "trained", "-p", "tests.support.other_rounding", "-p", "no:cacheprovider"]
    arguments += [f"--rounding={rounding}" for rounding in roundings]
    arguments += map(str, paths)
    if not surroundings:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = pytest.main(arguments)
        return code, output.getvalue()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_versions_match_results_of_other_processors(setting: str) -> None:
    paths = [
        path
        for path in sorted((ROOT / "tests" / "tasks").rglob("test_*.py"))
        if MARK in (text := path.read_text()) and path != Path(__file__).resolve()
        if setting == ALL or re.search(r"test_\w+_version", text)
    ]
    assert paths
    code, output = run_trained_tests(paths, *SETTINGS[setting])
    assert code == 0, output
    summary = re.search(r"(\d+) passed", output)
    assert summary is not None
    assert int(summary[1]) >= len(paths) * len(SETTINGS[setting][1])


@pytest.mark.slow
def test_rounding_sensitive_number_is_detected(tmp_path: Path) -> None:
    """A student that starts equal to its teacher moves in a direction that only rounding decides."""
    (tmp_path / "test_departure.py").write_text(DEPARTURE)
    code, output = run_trained_tests([tmp_path / "test_departure.py"], {}, ("torch", "noise"))
    assert code == 1, output
    assert re.search(r"FAILED \S+\[noise\]", output), output
    assert "1 failed, 1 passed" in output, output


DEPARTURE = """
import pytest
from tasks.training.mixed import unlearn
from tasks.training.unlearning_config import Unlearning
from tests.support.fingerprint import TRAINED, total
from tests.tasks.audits.forgetting import computed_tables as versions

EXPECTED = []


@pytest.mark.trained
def test_it() -> None:
    versions.train_model.cache_clear()
    config = Unlearning(
        (versions.Share(versions.Part(versions.pin(versions.Dataset("digits-on-photos")), 60, 60)),),
        (versions.Share(versions.DIGITS, 0.5, 3),),
        versions.Distillation(3, 2), versions.DIGITS.data, 10, seed=2, batch=16,
    )
    found = total(versions.epochs(unlearn(config, [versions.train_model()])))
    EXPECTED.append(found)
    assert EXPECTED[0] == pytest.approx(found, rel=TRAINED)
"""
