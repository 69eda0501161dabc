"""Which controls of laws, guidance and standards an audit speaks to: a line of the certificate, and tables of law.md.

An audit names the attacks that it tries; a control says which attacks it is about. An audit speaks to a control that
shares an attack with it. That is no statement that the control is met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Attack(Enum):
    """What an attacker who has the model, or only its answers, wants to know."""

    MEMBERSHIP = "membership inference"
    ATTRIBUTE = "attribute inference"
    RECONSTRUCTION = "reconstruction"
    EXTRACTION = "extraction"


@dataclass(frozen=True)
class Control:
    """A control, and where an answer to it stands.

    `paragraph` is where it stands in `source`; `asks` says in our words what it asks. `field` is the part of the
    certificate that answers. `seen` is where its text was looked up; empty where it was not.
    """

    source: str
    paragraph: str
    asks: str
    attacks: tuple[Attack, ...]
    field: str
    seen: str = ""


CAVEAT = "To speak to a control is not to meet it."
ALL = tuple(Attack)
EDPB, CNIL, NIST = "EDPB Opinion 28/2024", "CNIL, sheet of 22 July 2025", "NIST AI 100-2 (2025)"
AISVS, ATLAS = "OWASP AISVS", "MITRE ATLAS"
INSIGHTS = (
    "https://globalregulatoryinsights.com/art/opinion-28-2024-on-certain-data-protection-aspects-related-to-the-"
    "processing-of-personal-data-in-the-context-of-ai-models"
)
SHEET = "https://www.cnil.fr/fr/ia-analyser-le-statut-dun-modele-dia-au-regard-du-rgpd"
CONTROLS = (
    Control(
        EDPB,
        "executive summary",
        "both the likelihood that personal data are extracted from the model, and that queries bring them out, are "
        "insignificant, by all means reasonably likely to be used",
        ALL,
        "Answered: the number and its interval",
        INSIGHTS,
    ),
    Control(
        EDPB,
        "paragraph 55",
        "the model was tested against attribute and membership inference (i), exfiltration (ii), regurgitation (iii), "
        "model inversion (iv) and reconstruction (v)",
        ALL,
        "Asked; By which rule",
        "list and numbers in summaries by third parties",
    ),
    Control(
        CNIL,
        "introduction",
        "whether personal data that the model memorised can be extracted by means reasonably likely to be used; if so, "
        "the GDPR applies to the model",
        ALL,
        "Answered; What it does not say",
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
        "Asked; Answered",
        "https://www.cnil.fr/en/paname-partnership-privacy-auditing-ai-models",
    ),
    Control(
        "NIST AI RMF 1.0",
        "MEASURE 2.10",
        "the privacy risk that the map function identified is examined and documented",
        ALL,
        "Answered; What was audited, and the result",
        "https://learn.daydream.ai/requirements/nist-ai-rmf-airmf-55",
    ),
    Control(
        NIST,
        "NISTAML.033",
        "membership inference: whether a record was in the training data",
        (Attack.MEMBERSHIP,),
        "Asked",
        "identifiers and names by third parties; sections 2.4.1 and 2.4.2 of the edition of 2023 from its contents",
    ),
    Control(
        NIST,
        "NISTAML.032",
        "data reconstruction, with attribute inference: records or attributes from a model",
        (Attack.RECONSTRUCTION, Attack.ATTRIBUTE),
        "Asked",
        "as the row above",
    ),
    Control(
        NIST,
        "NISTAML.038",
        "data extraction: training data from what a generative model writes",
        (Attack.EXTRACTION,),
        "Asked",
        "as the row above",
    ),
    Control(
        "OWASP AI Testing Guide",
        "AITG-MOD-04",
        "models do not answer differently on points that they were trained on",
        (Attack.MEMBERSHIP,),
        "Answered: the number beside its null",
        "https://github.com/OWASP/www-project-ai-testing-guide, in a copy of 2025-11-23",
    ),
    Control(
        AISVS,
        "C11.3.3",
        "simulated membership inference is not meaningfully better than guessing, on data held out",
        (Attack.MEMBERSHIP,),
        "Answered: the number beside its null",
        "https://github.com/OWASP/AISVS/blob/01d32e2a2cb1dfe15f5c2287173bb51995c9a248/1.0/en/"
        "0x10-C11-Adversarial-Robustness.md",
    ),
    Control(
        AISVS,
        "C11.4",
        "training data and sensitive attributes cannot be reconstructed from outputs",
        (Attack.RECONSTRUCTION, Attack.ATTRIBUTE),
        "Answered",
        "the same file",
    ),
    Control(
        ATLAS,
        "AML.T0024.000",
        "Infer Training Data Membership",
        (Attack.MEMBERSHIP,),
        "Asked",
        "https://www.startupdefense.io/mitre-atlas-techniques/aml-t0024-000-infer-training-data-membership",
    ),
    Control(
        ATLAS,
        "AML.T0057",
        "LLM Data Leakage: prompts bring out private data, those of training among them",
        (Attack.EXTRACTION,),
        "Asked",
        "name and description by third parties",
    ),
    Control(
        "EU AI Act",
        "Article 15(5)",
        "high-risk systems: measures against confidentiality attacks, among others",
        ALL,
        "Answered; What was audited, and the result",
        "the article's text in public repositories",
    ),
)


def controls_of(attacks: Iterable[Attack]) -> list[Control]:
    """The controls that are about one of these attacks."""
    tried = set(attacks)
    return [control for control in CONTROLS if tried.intersection(control.attacks)]


def describe_controls(attacks: Iterable[Attack]) -> str:
    """`EDPB Opinion 28/2024 (executive summary, paragraph 55); ...`; empty where no attack is tried."""
    paragraphs: dict[str, list[str]] = {}
    for control in controls_of(attacks):
        paragraphs.setdefault(control.source, []).append(control.paragraph)
    return "; ".join(f"{source} ({', '.join(those)})" for source, those in paragraphs.items())


def format_tables(attacks: Mapping[str, Sequence[Attack]]) -> Iterator[str]:
    """The lines of two tables: the attacks that each audit tries, and the audits that speak to each control."""
    yield from (CAVEAT, "", "| audit | tries |", "|---|---|")
    for audit, tried in attacks.items():
        yield f"| `{audit}` | {', '.join(attack.value for attack in tried)} |"
    yield from ("", "| control | asks | audits | field of the certificate | looked up |", "|---|---|---|---|---|")
    for control in CONTROLS:
        speaking = [f"`{audit}`" for audit, tried in attacks.items() if control in controls_of(tried)]
        audits = "all" if len(speaking) == len(attacks) else ", ".join(speaking)
        place = f"{control.source}, {control.paragraph}"
        yield f"| {place} | {control.asks} | {audits} | {control.field} | {control.seen or 'not looked up'} |"
