"""The controls of an audit: all controls about an attack that it tries."""

from __future__ import annotations

from tasks.contract.crosswalk import CONTROLS, Attack, controls_of, describe_controls, format_tables


def test_audit_lists_controls_of_its_attacks() -> None:
    paragraphs = {}
    for attack in Attack:
        paragraphs[attack] = {control.paragraph for control in controls_of([attack])}
    assert (paragraphs[Attack.MEMBERSHIP] - paragraphs[Attack.EXTRACTION]) == {
        "AITG-MOD-04",
        "C11.3.3",
        "AML.T0024.000",
        "NISTAML.033",
    }
    assert paragraphs[Attack.EXTRACTION] - paragraphs[Attack.MEMBERSHIP] == {"AML.T0057", "NISTAML.038"}
    assert paragraphs[Attack.ATTRIBUTE] == paragraphs[Attack.RECONSTRUCTION]
    assert controls_of([]) == []
    assert describe_controls([]) == ""


def test_control_is_listed_once_with_its_source() -> None:
    lines = list(format_tables({"toy": [Attack.EXTRACTION], "other": [Attack.MEMBERSHIP]}))
    assert len({(control.source, control.paragraph) for control in CONTROLS}) == len(CONTROLS)
    controls = lines[lines.index("| control | asks | audits | part of the report | looked up |") + 2 :]
    assert [control.text_source or "not looked up" for control in CONTROLS] == [
        line.split(" | ")[-1].removesuffix(" |") for line in controls
    ]
    assert {"| `toy` | extraction |", "| `other` | membership inference |"} <= {*lines}
    audits = {}
    for line in controls:
        audits[line.split(" | ")[0].removeprefix("| ")] = line.split(" | ")[2]
    assert audits["MITRE ATLAS, AML.T0057"] == "`toy`"
    assert audits["OWASP AISVS, C11.3.3"] == "`other`"
    assert audits["EU AI Act, Article 15(5)"] == "all"
