"""Extraction of secrets: prompts, criteria, control models and the bound by chance."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats

from tasks.audits.text import AUDIT
from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BY_CONTROL, BY_TRAINED, edit_distance, score_secret_ends, shared_beginning
from tasks.audits.text.given.model import (
    GivenLanguageModel,
    given_question,
    question_surroundings,
    questions,
    score_planted,
)
from tasks.audits.text.measures import summary
from tasks.audits.text.presets import SMOKE
from tasks.audits.text.question import Continuation, Secrets
from tasks.audits.text.reproduced import MOST_NAMED, NOT_REPRODUCED, REPRODUCED, name_found
from tasks.audits.text.secrets.extraction import EXTRACTION, Extraction, extraction, plan
from tasks.audits.text.secrets.models import score_secrets
from tasks.audits.text.secrets.ranks import Ranking, identifiers, secrets
from tasks.audits.text.secrets.space import SCORES, SecretSpace, add_ends, draw_secrets, secret_surroundings
from tasks.audits.text.trainings import trainings
from tasks.contract.job import Job
from tasks.contract.summaries import index_rows, row_name
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.language_models.pretrained import prepare_model
from tests.support.calibration import bounds
from tests.support.golden import Golden
from tests.tasks.audits.text.made_up import configure, make_scores, pair_of, planted_of
from tests.tasks.audits.text.test_identifiers import draw_identifier_scores

CONFIG = configure(SMOKE, data=pin(Dataset("facts")), extraction="continuation")
SETTINGS = Extraction(Secrets.pattern, 2, Continuation.attempts, Continuation.probability, Continuation.edit_distance)


def add_continuations(tables: list[pa.Table], reproduced_share: float, seed: int, size: int = 10**6) -> list[pa.Table]:
    """Add continuations: models reproduce the share `reproduced_share` of their secrets, and other secrets by
    chance.
    """
    rng = np.random.default_rng(seed)
    extended_tables = []
    for table in tables:
        is_member = table["inserted"].to_numpy(zero_copy_only=False)
        is_reproduced = np.where(is_member, rng.random(len(is_member)) < reproduced_share, False) | (
            rng.random(len(is_member)) < 1 / size
        )
        mismatches = np.where(is_reproduced, 0, 6).tolist()
        ends = {"tokens": [6] * len(is_member), "log_p_end": np.where(is_reproduced, -0.1, math.log(1 / size)).tolist()}
        extended_tables.append(add_ends(table, {**ends, "mismatches": mismatches, "edit_distance": mismatches}))
    return extended_tables


def summary_of(tables: list[pa.Table], config: Text = CONFIG) -> pa.Table:
    job = plan(config, trainings(config))
    assert isinstance(job, Job)
    return summary(About(config.level), [secrets(Ranking(config.level), tables), extraction(job.config, tables)])


def test_model_continues_the_text_before_a_secret() -> None:
    config = pair_of(CONFIG, 0, 0)
    model = prepare_model(config, (), torch.device("cpu"))
    (secret, *_), surroundings = draw_secrets(config), secret_surroundings(config)
    assert surroundings[0] == ("Patient 1: code ", ".")
    columns = score_secret_ends(config, model, [(secret.text, *secret.references)], surroundings[:1])
    code = secret.text.removeprefix("Patient 1: code ").removesuffix(".")
    before = model.encode_texts(["Patient 1: code "], 99)[0][:-1]
    code_tokens = model.encode_texts([code], 99)[0][:-1]
    log_p = 0.0
    continuation = list[int]()
    for index, token in enumerate(code_tokens):
        with torch.no_grad():
            prompt = torch.tensor([[model.begin, *before, *code_tokens[:index]]])
            log_p += float(model.module(prompt).logits[0, -1].double().log_softmax(-1)[token])
            prompt_so_far = torch.tensor([[model.begin, *before, *continuation]])
            continuation.append(int(model.module(prompt_so_far).logits[0, -1].argmax()))
    assert columns["tokens"] == [6]
    assert columns["log_p_end"] == [pytest.approx(log_p, rel=1e-5)]
    assert [
        sum(
            continued_token != expected_token
            for continued_token, expected_token in zip(continuation, code_tokens, strict=True)
        )
    ] == columns["mismatches"]
    assert [edit_distance(continuation, code_tokens)] == columns["edit_distance"]
    with pytest.raises(ValueError, match=r"length: expected more than the .* tokens of a text with a secret, got 12"):
        score_secret_ends(replace(config, length=12), model, [(secret.text,)], surroundings[:1])


def test_prompt_ends_before_candidates_differ() -> None:
    assert shared_beginning([[1, 2, 3], [1, 2, 9, 4], [1, 2, 3, 5]]) == [1, 2]
    assert SecretSpace("card {number}-{digits:4} {letters:2} of {number}").surroundings(7) == ("card 7-", " of 7")


def test_surroundings_of_identifier_include_context_and_format() -> None:
    tickets = pin(Dataset("tickets"))
    config = given_question(configure(data=tickets, identifiers=("uuid4",), secrets=4, references=99, context=30))
    assert isinstance(config, GivenLanguageModel)
    for texts, (before, after) in zip(questions(config), question_surroundings(config), strict=True):
        assert all(text.startswith(before) and text.endswith(after) for text in texts)
        assert re.fullmatch(r"[0-9a-f-]{36}", texts[0][len(before) : len(texts[0]) - len(after)])


def score_table(*rows: tuple[int, bool, float, int]) -> pa.Table:
    """Build scores from rows of secret number, membership, log p_z and mismatches."""
    ends = {"tokens": [6] * len(rows), "log_p_end": [row[2] for row in rows], "mismatches": [row[3] for row in rows]}
    about = [[0] * len(rows), [row[0] for row in rows], [4] * len(rows), [row[1] for row in rows], [[-1.0]] * len(rows)]
    return add_ends(pa.table(about, schema=SCORES), {**ends, "edit_distance": ends["mismatches"]})


def test_each_criterion_has_control_and_chance() -> None:
    likely = math.log(0.6)
    table = extraction(
        SETTINGS,
        [
            score_table((1, True, likely, 0), (2, False, -20.0, 6)),
            score_table((1, False, -12.0, 5), (2, True, -9.0, 1)),
        ],
    )
    assert table.schema == EXTRACTION
    rows_by_secret = {}
    for item in table.to_pylist():
        rows_by_secret[(item["secret"], item["way"])] = item
    ways = ["greedy", "near-verbatim", "1 attempt", "100 attempts", "10000 attempts"]
    assert ways == [way for secret, way in rows_by_secret if secret == 1]
    assert [rows_by_secret[1, way]["reproduced"] for way in ways] == [True] * 5
    # log p_z of -9 is above log(1 - .5^(1/10000)) = -9.58, and of -12 below.
    assert [rows_by_secret[2, way]["reproduced"] for way in ways] == [False] * 4 + [True]
    assert not any(rows_by_secret[secret, way]["reproduced_control"] for secret in (1, 2) for way in ways)
    assert {item["model"]: item["secret"] for item in table.to_pylist()} == {0: 1, 1: 2}
    smallest_p = 1 - 0.5 ** (1 / 100)
    assert tuple(rows_by_secret[1, way]["chance"] for way in ("greedy", "near-verbatim", "100 attempts")) == (
        1e-6,
        None,
        pytest.approx(1 / (smallest_p * 1e6)),
    )
    rows = index_rows(summary(About(0.05), [table]))
    by_trained = rows[row_name("share reproduced", way="greedy", by=BY_TRAINED)]
    by_control = rows[row_name("share reproduced", way="greedy", by=BY_CONTROL)]
    assert by_trained["estimate"] == 0.5
    assert by_trained["n"] == 2
    assert by_trained["null"] == 1e-6
    assert by_control["estimate"] == 0.0
    assert by_trained["p_value"] == pytest.approx(stats.binom.sf(0, 2, 1e-6))
    assert rows[row_name("reproduced beyond the control models", way="greedy")]["estimate"] == 0.5


def test_without_control_model_only_chance_remains() -> None:
    rows = index_rows(
        summary(About(0.05), [extraction(SETTINGS, [score_table((1, True, -0.1, 0), (2, True, -9.0, 1))])])
    )
    assert row_name("share reproduced", way="greedy", by="trained model") in rows
    assert not [name for name in rows if "twin" in str(name)]
    single_score = score_table((1, True, -0.1, 0))
    without_ends = single_score.set_column(
        single_score.column_names.index("log_p_end"), "log_p_end", pa.nulls(1, pa.float64())
    )
    assert extraction(SETTINGS, [without_ends]).num_rows == 0
    assert extraction(replace(SETTINGS, pattern=""), [without_ends]).num_rows == 0


def test_certificate_lists_reproduced_secrets(golden: Golden) -> None:
    tables = add_continuations(make_scores(8.0, 1), 1.0, 1)
    table = summary_of(tables)
    verdict = AUDIT.answer(CONFIG, table)
    assert verdict is not None
    golden(verdict.sentence)
    tables_by_name = {"secrets": secrets(Ranking(0.05), tables), "extraction": extraction(SETTINGS, tables)}
    page = AUDIT.certify("", CONFIG, table, lambda name: tables_by_name.get(name, pa.table({})))
    assert page is not None
    assert [finding.answer for finding in page.findings] == ["memorised", REPRODUCED]
    count = tables_by_name["secrets"]["found"].to_pylist().count(True)
    listed_text = page.findings[0].sentence.partition("Found: ")[2]
    listed_text = listed_text.partition(" A model")[0]
    assert min(count, MOST_NAMED) == listed_text.count("secret ")
    assert ", rank 1 of 500, reproduced word for word)" in listed_text
    assert (f"and {count - MOST_NAMED} more." in listed_text) == (count > MOST_NAMED)
    without_reproduction = summary_of(add_continuations(make_scores(8.0, 1), 0.0, 1))
    page = AUDIT.certify("", CONFIG, without_reproduction)
    assert page is not None
    assert [finding.answer for finding in page.findings] == ["memorised", NOT_REPRODUCED]


def test_at_most_twenty_found_secrets_are_listed() -> None:
    ranked = secrets(Ranking(0.05), make_scores(40.0, 1, secrets=24))

    def read_table(name: str, table: pa.Table = ranked) -> pa.Table:
        return table if name == "secrets" else pa.table({})

    listed_text = name_found(CONFIG, read_table)
    assert "; and 4 more." in listed_text
    assert "reproduced" not in listed_text
    assert "in the texts once, rank 1 of 500" in listed_text
    assert "in the texts" not in name_found(configure(CONFIG, is_null=True), read_table)
    uneven = identifiers(Ranking(0.05), [draw_identifier_scores(0.01, 40.0, 1)])
    even = identifiers(Ranking(0.05), [draw_identifier_scores(0.5, 40.0, 1)])
    config = configure(identifiers=("uuid4",))
    assert name_found(config, lambda name: uneven if name == "identifiers" else pa.table({})) == ""
    assert "uuid4 of text 0 (in the texts once, rank 1" in name_found(
        config, lambda name: even if name == "identifiers" else pa.table({})
    )
    none_found = ranked.set_column(ranked.column_names.index("found"), "found", pa.array([False] * 24))
    assert name_found(CONFIG, lambda name: read_table(name, none_found)) == ""


def test_guesses_rarely_count_as_reproduction() -> None:
    """In a space of 100, a guess is right once in 100 times."""
    p_values = []
    for seed in range(400):
        scores = add_continuations(make_scores(0.0, seed, secrets=5, references=99), 0.0, seed, size=100)
        criteria = replace(SETTINGS, pattern="{number} {digits:2}")
        rows = index_rows(summary(About(0.05), [extraction(criteria, scores)]))
        p_values.append(rows[row_name("share reproduced", way="greedy", by="trained model")]["p_value"])
    for level in (0.05, 0.2):
        assert sum(p <= level for p in p_values) <= bounds(level, 400)[1]


def test_tables_without_extraction_have_no_extra_columns() -> None:
    plain = configure(CONFIG, extraction=None)
    assert plan(plain, trainings(plain)) == ()
    assert SCORES.names == score_secrets(pair_of(plain, 0, 0), ()).column_names
    model = planted_of(configure(question="planted", secrets=6, model="tiny-gpt#16x1", extraction="continuation"))
    assert set(score_planted(model, ()).column_names) == {
        *SCORES.names,
        "tokens",
        "log_p_end",
        "mismatches",
        "edit_distance",
    }


@pytest.mark.trained
def test_small_gpt_reproduces_only_its_own_secrets() -> None:
    config = configure(CONFIG, repetitions=(40,), epochs=24, batch=16, learning_rate=5e-3, length=128)
    tables = [score_secrets(pair_of(config, 0, side), ()) for side in range(2)]
    rows = index_rows(summary_of(tables, config))
    by_trained = rows[row_name("share reproduced", way="near-verbatim", by=BY_TRAINED)]["estimate"]
    by_control = rows[row_name("share reproduced", way="near-verbatim", by=BY_CONTROL)]["estimate"]
    assert by_trained > by_control + 0.5
