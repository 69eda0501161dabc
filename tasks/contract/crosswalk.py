"""Controls in laws, guidance and standards that an audit provides evidence for.

The certificate lists them in one line, and law.md in two tables. An audit lists the attacks that it tries, and a
control lists the attacks that it covers. An audit provides evidence for a control if they have an attack in common.
This does not mean that the control is met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Attack(Enum):
    """The goal of an attacker who has the model or its outputs."""

    MEMBERSHIP = "membership inference"
    ATTRIBUTE = "attribute inference"
    RECONSTRUCTION = "reconstruction"
    EXTRACTION = "extraction"


@dataclass(frozen=True)
class Control:
    """A control, and the part of the certificate that provides evidence for it.

    `paragraph` locates the control in `source`, `asks` paraphrases it, and `field` names the part of the certificate.
    `text_source` states where the text of the control was looked up; it is empty if it was not.
    """

    source: str
    paragraph: str
    asks: str
    attacks: tuple[Attack, ...]
    field: str
    text_source: str = ""


CAVEAT = "This audit provides evidence for these controls. It does not show that they are met."
ALL = tuple(Attack)
EDPB = "EDPB Opinion 28/2024"
CNIL = "CNIL, sheet of 22 July 2025"
NIST = "NIST AI 100-2 (2025)"
AISVS = "OWASP AISVS"
ATLAS = "MITRE ATLAS"
INSIGHTS = (
    "https://globalregulatoryinsights.com/art/opinion-28-2024-on-certain-data-protection-aspects-related-to-the-"
    "processing-of-personal-data-in-the-context-of-ai-models"
)
SHEET = "https://www.cnil.fr/fr/ia-analyser-le-statut-dun-modele-dia-au-regard-du-rgpd"
CONTROLS = (
    Control(
        EDPB,
        "executive summary",
        "the likelihood that personal data are extracted from the model and the likelihood that queries reveal them "
        "are both insignificant, considering all means reasonably likely to be used",
        ALL,
        "Answer: the number and its interval",
        INSIGHTS,
    ),
    Control(
        EDPB,
        "paragraph 55",
        "the model was tested against attribute and membership inference (i), exfiltration (ii), regurgitation (iii), "
        "model inversion (iv) and reconstruction (v)",
        ALL,
        "Question; Rule and statistics",
        "list and numbers in summaries by third parties",
    ),
    Control(
        CNIL,
        "introduction",
        "whether personal data that the model memorised can be extracted by means reasonably likely to be used; if so, "
        "the GDPR applies to the model",
        ALL,
        "Answer; What this does not show",
        SHEET,
    ),
    Control(
        CNIL, "“Mise en œuvre de l’analyse”", "how the analysis is done and documented", ALL, "the whole certificate"
    ),
    Control(
        "PANAME (CNIL, ANSSI, PEReN, IPoP)",
        "“Audit models for compliance”",
        "a model is shown to be resistant to *privacy attacks*, by *confidentiality tests*",
        ALL,
        "Question; Answer",
        "https://www.cnil.fr/en/paname-partnership-privacy-auditing-ai-models",
    ),
    Control(
        "NIST AI RMF 1.0",
        "MEASURE 2.10",
        "the privacy risk that the map function identified is examined and documented",
        ALL,
        "Answer; Audited items and results",
        "https://learn.daydream.ai/requirements/nist-ai-rmf-airmf-55",
    ),
    Control(
        NIST,
        "NISTAML.033",
        "membership inference: determining whether a record was in the training data",
        (Attack.MEMBERSHIP,),
        "Question",
        "identifiers and names by third parties; sections 2.4.1 and 2.4.2 of the edition of 2023 from its contents",
    ),
    Control(
        NIST,
        "NISTAML.032",
        "data reconstruction, including attribute inference: recovering records or attributes from a model",
        (Attack.RECONSTRUCTION, Attack.ATTRIBUTE),
        "Question",
        "as the row above",
    ),
    Control(
        NIST,
        "NISTAML.038",
        "data extraction: obtaining training data from the output of a generative model",
        (Attack.EXTRACTION,),
        "Question",
        "as the row above",
    ),
    Control(
        "OWASP AI Testing Guide",
        "AITG-MOD-04",
        "models do not respond differently to data points that they were trained on",
        (Attack.MEMBERSHIP,),
        "Answer: the number and its null value",
        "https://github.com/OWASP/www-project-ai-testing-guide, in a copy of 2025-11-23",
    ),
    Control(
        AISVS,
        "C11.3.3",
        "simulated membership inference is not meaningfully better than guessing on held-out data",
        (Attack.MEMBERSHIP,),
        "Answer: the number and its null value",
        "https://github.com/OWASP/AISVS/blob/01d32e2a2cb1dfe15f5c2287173bb51995c9a248/1.0/en/"
        "0x10-C11-Adversarial-Robustness.md",
    ),
    Control(
        AISVS,
        "C11.4",
        "training data and sensitive attributes cannot be reconstructed from outputs",
        (Attack.RECONSTRUCTION, Attack.ATTRIBUTE),
        "Answer",
        "the same file",
    ),
    Control(
        ATLAS,
        "AML.T0024.000",
        "Infer Training Data Membership",
        (Attack.MEMBERSHIP,),
        "Question",
        "https://www.startupdefense.io/mitre-atlas-techniques/aml-t0024-000-infer-training-data-membership",
    ),
    Control(
        ATLAS,
        "AML.T0057",
        "LLM Data Leakage: prompts reveal private data, including training data",
        (Attack.EXTRACTION,),
        "Question",
        "name and description by third parties",
    ),
    Control(
        "EU AI Act",
        "Article 15(5)",
        "high-risk systems: measures against confidentiality attacks, among others",
        ALL,
        "Answer; Audited items and results",
        "the article's text in public repositories",
    ),
)


def controls_of(attacks: Iterable[Attack]) -> list[Control]:
    """Return the controls that cover at least one of these attacks."""
    tried = set(attacks)
    return [control for control in CONTROLS if tried.intersection(control.attacks)]


def describe_controls(attacks: Iterable[Attack]) -> str:
    """Format the controls: `EDPB Opinion 28/2024 (executive summary, paragraph 55); ...`.

    Returns an empty string if there are no attacks.
    """
    paragraphs: dict[str, list[str]] = {}
    for control in controls_of(attacks):
        paragraphs.setdefault(control.source, []).append(control.paragraph)
    return "; ".join(f"{source} ({', '.join(those)})" for source, those in paragraphs.items())


def format_tables(attacks: Mapping[str, Sequence[Attack]]) -> Iterator[str]:
    """Yield the lines of two tables: the attacks tried by each audit, and the audits that provide evidence for each
    control.
    """
    yield from (CAVEAT, "", "| audit | tries |", "|---|---|")
    for audit, tried in attacks.items():
        yield f"| `{audit}` | {', '.join(attack.value for attack in tried)} |"
    yield from ("", "| control | asks | audits | part of the report | looked up |", "|---|---|---|---|---|")
    for control in CONTROLS:
        speaking = [f"`{audit}`" for audit, tried in attacks.items() if control in controls_of(tried)]
        if len(speaking) == len(attacks):
            audits = "all"
        else:
            audits = ", ".join(speaking)
        reference = f"{control.source}, {control.paragraph}"
        text_source = control.text_source or "not looked up"
        yield f"| {reference} | {control.asks} | {audits} | {control.field} | {text_source} |"
