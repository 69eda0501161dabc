"""Documents: assignment to models, answers with and without memory, and reproduction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.audits.text import AUDIT
from tasks.audits.text.answer import RULES
from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BY_CONTROL, BY_TRAINED, edit_distance
from tasks.audits.text.documents.answer import NULL_OF_DOCUMENTS
from tasks.audits.text.documents.models import (
    DOCUMENT_SCORES,
    DocumentModel,
    draw_documents,
    memberships,
    score_documents,
    score_model,
    training_texts,
)
from tasks.audits.text.documents.ranks import document_test, documents, estimates
from tasks.audits.text.measures import summary
from tasks.audits.text.question import Documents
from tasks.audits.text.reproduced import NOT_REPRODUCED, REPRODUCED
from tasks.audits.text.trainings import trainings
from tasks.contract.summaries import index_rows, row_name
from tasks.contract.verdict import BELOW_RELEVANT_SIZE
from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import draw_balanced_members
from tasks.language_models.pretrained import prepare_model
from tests.support.calibration import bounds
from tests.tasks.audits.text.made_up import configure, question_of

FACTS = pin(Dataset("facts"))
CONFIG = configure(
    data=FACTS, examples=20, documents=12, models=16, prefix=20, suffix=20, repetitions=(1, 4), model="tiny-gpt#16x1",
    length=128, epochs=2, batch=16, learning_rate=3e-3,
)  # fmt: skip


def configs(config: Text) -> list[DocumentModel]:
    return [job.config for job in trainings(config)]


def draw_scores(gain: float, seed: int, config: Text = CONFIG, reproduced_share: float = 0.0) -> list[pa.Table]:
    """Draw scores of documents; trained models score a document higher by `gain` nats per token.

    Trained models reproduce the share `reproduced_share` of their documents, control models none.
    """
    rng = np.random.default_rng(seed)
    question = question_of(config, Documents)
    count = question.documents
    member = draw_balanced_members(count, question.models, seed)
    difficulty = rng.normal(-2, 0.3, count)
    tokens = rng.integers(60, 90, count)
    tables = []
    for is_member in member:
        log_p = tokens * (difficulty + rng.normal(0, 0.05) + rng.normal(0, 0.1, count) + gain * is_member)
        mismatches = np.where(is_member & (rng.random(count) < reproduced_share), 0, 15)
        columns = [range(count), [1, 4] * (count // 2), is_member, tokens, log_p, -2.0 * mismatches - 0.1]
        tables.append(pa.table([*map(pa.array, columns), mismatches, mismatches], schema=DOCUMENT_SCORES))
    return tables


def measure(tables: list[pa.Table], config: Text = CONFIG) -> list[pa.Table]:
    test = document_test(question_of(config, Documents), config)
    return [documents(test, tables), estimates(test, tables)]


def summary_of(tables: list[pa.Table], config: Text = CONFIG) -> pa.Table:
    return summary(About(config.level), measure(tables, config))


def test_each_document_is_in_half_of_the_models() -> None:
    models = configs(CONFIG)
    tested = draw_documents(models[0])
    assert all(tested == draw_documents(model) for model in models)
    assert [document.repetitions for document in tested] == [1, 4] * 6
    texts = [Counter(training_texts(model, tested)) for model in models]
    for number, document in enumerate(tested):
        counts = [counter[document.text] for counter in texts]
        assert [document.repetitions] * 8 == sorted(counts)[8:]
        assert counts == [document.repetitions * memberships(model)[number] for model in models]
    tested_texts = {document.text for document in tested}
    other_texts = [text for text in load_texts(FACTS)[:20] if text not in tested_texts]
    assert all(counter[text] == 1 for counter in texts for text in other_texts)


def test_control_run_trains_on_other_documents() -> None:
    model = configs(configure(CONFIG, is_null=True, documents=10))[0]
    tested = draw_documents(model)
    assert not {document.text for document in tested} & set(training_texts(model, tested))
    with pytest.raises(DatasetError, match="documents: expected at most 10, got 12; facts has 20 distinct texts"):
        trainings(configure(CONFIG, is_null=True))


def test_copies_share_the_split_of_their_document(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text("".join(f'{{"id": "{index}", "text": "{text}"}}\n' for index, text in enumerate("aabcdd")))
    data = pin(Dataset(f"records:{file}"))
    config = configure(CONFIG, data=data, documents=3, models=4, examples=0, repetitions=(2,))
    for deduplicated in (False, True):
        for model in configs(configure(config, deduplicate=deduplicated)):
            tested = draw_documents(model)
            text_counts = Counter(training_texts(model, tested))
            for document, member in zip(tested, memberships(model), strict=True):
                copies = 1 if deduplicated else 2 * load_texts(data).count(document.text)
                assert text_counts[document.text] == (copies if member else 0)
            (common_text,) = set("abcd") - {document.text for document in tested}
            assert text_counts[common_text] == (1 if deduplicated else load_texts(data).count(common_text))


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("kitten", "sitting", 3),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("xabc", "abcy", 2),
        ("flaw", "lawn", 2),
    ],
)
def test_edit_distance_is_the_levenshtein_distance(first: str, second: str, distance: int) -> None:
    assert distance == edit_distance([*map(ord, first)], [*map(ord, second)])


def test_continuation_is_the_most_likely_bytes() -> None:
    config = replace(configs(CONFIG)[0], prefix=5, suffix=4)
    model = prepare_model(config, (), torch.device("cpu"))
    (text,) = load_texts(FACTS)[:1]
    (columns,) = [{name: values[0] for name, values in score_model(config, model, [text]).items()}]
    (tokens,) = model.encode_texts([text], config.length)
    prompt = [model.begin, *tokens[:5]]
    log_p = 0.0
    continuation = []
    for token in tokens[5:9]:
        with torch.no_grad():
            log_probabilities = model.module(torch.tensor([prompt])).logits[0, -1].double().log_softmax(-1)
            logits = model.module(torch.tensor([[model.begin, *tokens[:5], *continuation]])).logits[0, -1]
        log_p += float(log_probabilities[token])
        prompt.append(token)
        continuation.append(int(logits.argmax()))
    assert columns["log_p_end"] == pytest.approx(log_p, rel=1e-5)
    assert columns["mismatches"] == sum(
        continued != expected for continued, expected in zip(continuation, tokens[5:9], strict=True)
    )
    assert columns["edit_distance"] == edit_distance(continuation, tokens[5:9])
    short = score_model(replace(config, prefix=500), model, [text])
    assert short["log_p_end"] == [None]


def test_reproduction_is_compared_with_control_models() -> None:
    rows = index_rows(summary_of(draw_scores(0.5, 1, reproduced_share=1.0)))
    for way in ("greedy", "near-verbatim", "1 attempt"):
        assert tuple(
            rows[row_name("share reproduced", way=way, by=by)]["estimate"] for by in (BY_TRAINED, BY_CONTROL)
        ) == (
            1.0,
            0.0,
        )
        difference = rows[row_name("reproduced beyond the control models", way=way)]
        assert 0.5 < difference["low"] < difference["estimate"] == 1.0
    # p_z is exp(-0.1) for reproduced documents and exp(-30.1) for others, which 10,000 attempts do not find.
    assert rows[row_name("share reproduced", way="10000 attempts", by="control model")]["estimate"] == 0.0


@pytest.mark.parametrize(
    ("gain", "reproduced_share", "answer", "reproduction"),
    [(0.5, 1.0, "memorised", REPRODUCED), (0.5, 0.0, "memorised", NOT_REPRODUCED)],
)
def test_known_documents_are_memorised_or_reproduced(
    gain: float, reproduced_share: float, answer: str, reproduction: str
) -> None:
    table = summary_of(draw_scores(gain, 2, reproduced_share=reproduced_share))
    verdict = AUDIT.answer(CONFIG, table)
    certificate = AUDIT.certify("", CONFIG, table)
    assert verdict is not None
    assert certificate is not None
    assert answer == verdict.answer
    assert [answer, reproduction] == [finding.answer for finding in certificate.findings]
    assert "12 of 12 documents are likelier" in verdict.sentence
    assert "from its beginning may be reproduced" in verdict.limits


def test_models_without_documents_are_left_out_of_means() -> None:
    config = configure(CONFIG, documents=2, models=4, repetitions=(1, 4))
    rows = index_rows(summary_of(draw_scores(0.5, 1, config, reproduced_share=1.0), config))
    assert rows[row_name("share reproduced", way="greedy", by="trained model", repetitions=4)]["estimate"] == 1.0
    assert rows[row_name("loss in nats a token", by="trained model", repetitions=1)]["estimate"] > 0


def test_verdict_names_a_control_run() -> None:
    config = configure(CONFIG, is_null=True, documents=10)
    verdict = AUDIT.answer(config, summary_of(draw_scores(0.0, 3, config), config))
    assert verdict is not None
    assert verdict.sentence.endswith(NULL_OF_DOCUMENTS)


def test_unknown_documents_are_rarely_found() -> None:
    config = configure(CONFIG, documents=60)
    answers = Counter[str]()
    p_values = []
    covered = 0
    for seed in range(100):
        tables = measure(draw_scores(0.0, seed, config), config)
        table = summary(About(config.level), tables)
        p_values += tables[0]["p_value"].to_pylist()
        effect = index_rows(table)[row_name("effect in nats a token")]
        covered += effect["low"] <= 0 <= effect["high"]
        verdict = AUDIT.answer(config, table)
        assert verdict is not None
        answers[verdict.answer] += 1
    assert answers["memorised"] <= bounds(config.level, 100)[1]
    assert answers["not detected"] >= 90
    assert covered >= 90
    for level in (0.01, 0.05, 0.2):
        # Pairs of documents have opposite halves, so only half of the documents are independent.
        assert np.mean(np.array(p_values) <= level) <= bounds(level, len(p_values) // 2)[1] / (len(p_values) // 2)


def test_documents_have_their_own_rules() -> None:
    answers = [case.answer for case in RULES.applicable_cases(CONFIG)]
    assert answers == ["memorised", "not assessable", BELOW_RELEVANT_SIZE, "not detected", "undecided"]


@pytest.mark.trained
def test_models_reproduce_only_repeated_training_documents() -> None:
    config = configure(
        CONFIG, documents=4, models=4, examples=4, repetitions=(24,), epochs=24, batch=8, learning_rate=5e-3, length=64,
        prefix=24, suffix=16,
    )  # fmt: skip
    tables = [score_documents(model, ()) for model in configs(config)]
    rows = index_rows(summary_of(tables, config))
    by_trained = rows[row_name("share reproduced", way="near-verbatim", by=BY_TRAINED)]["estimate"]
    by_control = rows[row_name("share reproduced", way="near-verbatim", by=BY_CONTROL)]["estimate"]
    assert by_trained > by_control + 0.5
    assert rows[row_name("pairs won")]["estimate"] == 1.0
