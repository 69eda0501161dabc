"""The tables of docs/benchmarks.md contain the numbers of the result files."""

from __future__ import annotations

import pytest

from bench import benchmark_page
from bench.benchmark_page import (
    CPU_CLAIMS,
    PAGE,
    RESULTS,
    ROOT,
    Claim,
    Compared,
    describe_range,
    describe_ratio,
    read_result,
)
from measurement.machine import machine_facts


def test_page_equals_rendered_result_files() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert benchmark_page.update_page(page) == page, "run `python -m bench.benchmark_page`"


def test_changed_number_is_detected() -> None:
    page = PAGE.read_text(encoding="utf-8")
    changed = page.replace("| 5247 us |", "| 2608 us |")
    assert changed != page
    assert benchmark_page.update_page(changed) == page


def test_each_row_names_its_files_machine() -> None:
    for claim in CPU_CLAIMS:
        for source, row in zip(claim.sources, benchmark_page.render_claim(claim), strict=True):
            facts = read_result(source.file).facts
            assert facts["date"] in row
            assert facts.get("processor", facts.get("machine")) in row


def test_missing_fact_is_reported_as_not_recorded() -> None:
    assert read_result("orchestration.md").ceiling("engram run, everything") == "not recorded"
    assert read_result("training-cpu.md").ceiling("mlp1's step, 1 thread, CPU time") == "206 GF/s"


def test_page_shows_recorded_verdicts_of_other_tools() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("## Verdicts of other tools")[2].partition("\n## ")[0]
    recorded = set((RESULTS / "rivals-cpu.md").read_text(encoding="utf-8").splitlines())
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert [line for line in rows if line not in recorded] == []


def test_several_machines_show_their_range() -> None:
    label = "mlp1's step, 1 thread, CPU time"
    sources = (Compared("training-cpu.md", label, "tensors"), Compared("training-zen4.md", label, "tensors"))
    first, second = benchmark_page.render_claim(Claim("a step", sources))
    assert "| 2.47x faster | 1.45x to 2.47x faster |" in first
    assert "| 1.45x faster | 1.45x to 2.47x faster |" in second


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(2.466, "2.47x faster"), (0.917, "1.09x slower"), (146.7, "147x faster"), (1.0, "1.00x faster")],
)
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert describe_ratio(ratio) == words


def test_range_can_reach_from_slower_to_faster() -> None:
    assert describe_range([1.2, 0.8]) == "1.25x slower to 1.20x faster"


def test_every_bench_records_date_processor_and_ceiling() -> None:
    facts = machine_facts(("pyarrow",))
    assert set(facts) == {"date", "processor", "ceiling", "load before", "versions"}
    assert " GF/s, 1 thread, " in facts["ceiling"]
    assert "pyarrow " in facts["versions"]


def test_no_bench_describes_the_machine_separately() -> None:
    scripts = []
    for folder in ("bench", "studies"):
        scripts.extend((ROOT / folder).glob("*.py"))
    violations = []
    for path in scripts:
        if "platform.processor" in path.read_text(encoding="utf-8"):
            violations.append(path.name)
    assert violations == []
