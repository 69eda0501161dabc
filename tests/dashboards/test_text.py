"""Figures of text's tables, and private texts, which are shown only on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dashboards.figures import figures
from dashboards.page import gallery
from dashboards.run import Run
from orchestrator.store import Store
from tasks.audits.text.config import Text
from tasks.audits.text.documents.insertions import insertion_estimates, insertions
from tasks.audits.text.documents.ranks import document_test, documents, estimates
from tasks.audits.text.presets import QUICKSTART
from tasks.audits.text.question import Documents, Insertions
from tasks.audits.text.secrets.ranks import Ranking, identifiers, secrets
from tasks.audits.text.secrets.space import draw_secrets
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tests.dashboards import made
from tests.dashboards.test_figures import named
from tests.support.golden import Golden
from tests.tasks.audits.text.made_up import configure, make_scores, pair_of, question_of
from tests.tasks.audits.text.test_documents import CONFIG, FACTS, draw_scores
from tests.tasks.audits.text.test_identifiers import draw_identifier_scores
from tests.tasks.audits.text.test_insertions import CONFIG as INSERTED
from tests.tasks.audits.text.test_insertions import draw_scores as draw_insertion_scores

WRITTEN = draw_scores(0.5, 1, reproduced_share=1.0)
DOCUMENT_TEST = document_test(question_of(CONFIG, Documents), CONFIG)
DOCUMENTS = {
    "documents": documents(DOCUMENT_TEST, WRITTEN),
    "document_estimates": estimates(DOCUMENT_TEST, WRITTEN),
}
TEST = document_test(question_of(INSERTED, Insertions), INSERTED)
INSERTIONS = {
    "insertions": insertions(TEST, draw_insertion_scores(0.15, 1)),
    "insertion_estimates": insertion_estimates(TEST, draw_insertion_scores(0.15, 1)),
}
TABLES = {**DOCUMENTS, **INSERTIONS, "secrets": secrets(Ranking(0.05), make_scores(8.0, 0))}


def run(store: Store, name: str, config: Text = CONFIG, **tables: Any) -> Run:
    parts = {root: [table] for root, table in tables.items()}
    return made.run(store, name, {"summary": [], **parts}, config, audit="text")


def test_figures_have_their_numbers_as_text(golden: Golden, store: Store) -> None:
    figures_by_name = named(run(store, "text-1", **DOCUMENTS))
    assert list(figures_by_name) == ["effects", "reproduction"]
    assert "6 of 6 found" in figures_by_name["effects"].alt
    golden(figures_by_name["reproduction"].alt)
    figures_by_name = named(run(store, "text-4", **INSERTIONS))
    assert list(figures_by_name) == ["effects", "reproduction"]
    golden(figures_by_name["effects"].alt, "alt")
    assert "0 times" not in figures_by_name["effects"].alt
    figures_by_name = named(run(store, "text-2", secrets=TABLES["secrets"]))
    assert list(figures_by_name) == ["exposures"]
    assert "4 times in the texts: mean" in figures_by_name["exposures"].alt
    figures_by_name = named(
        run(store, "text-3", identifiers=identifiers(Ranking(0.05), [draw_identifier_scores(0.5, 40.0, 1)]))
    )
    golden(figures_by_name["exposures"].alt, "alt")


@pytest.mark.parametrize("name", TABLES)
def test_invalid_tables_draw_nothing(store: Store, name: str) -> None:
    filled = TABLES[name]
    all_null = pa.table({field.name: pa.nulls(filled.num_rows, field.type) for field in filled.schema}, filled.schema)
    for number, variant in enumerate((pa.table({"column": [1]}), filled.slice(0, 0), all_null)):
        assert figures(run(store, f"text-{number}", **{name: variant})) == []


def test_private_texts_are_shown_only_on_request(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text(
        "".join(json.dumps({"id": str(number), "text": f"letter {number} to X"}) + "\n" for number in range(20))
    )
    config = configure(CONFIG, data=pin(Dataset(f"records:{file}")), examples=0)
    text_run = run(store, "text-own", config, **DOCUMENTS)
    for show_texts in (False, True):
        private_gallery = gallery(text_run, show_images=show_texts)
        assert private_gallery is not None
        assert show_texts == private_gallery.shown
        assert show_texts == any("to X" in words for record in private_gallery.records for _, words in record.fields)
        assert ("--show-texts" in private_gallery.note) != show_texts
    text_run = run(
        store,
        "text-secrets",
        configure(QUICKSTART, data=FACTS),
        secrets=TABLES["secrets"],
    )
    texts = {}
    for secret in draw_secrets(pair_of(text_run.private_config, 0, 0)):
        texts[secret.number] = secret.text
    secret_gallery = gallery(text_run, show_images=True)
    assert secret_gallery is not None
    assert {record.fields[0][1] for record in secret_gallery.records} <= set(texts.values())
    assert all(
        texts[int(record.title.removeprefix("secret "))] == record.fields[0][1] for record in secret_gallery.records
    )
    hidden = gallery(text_run, show_images=False)
    assert hidden is not None
    assert (hidden.records, hidden.shown, "--show-texts" in hidden.note) == ((), False, True)
    embedded = gallery(run(store, "text-embedded", **DOCUMENTS), show_images=False)
    assert embedded is not None
    assert embedded.shown
