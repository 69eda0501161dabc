"""Constant and rounded outputs on every route: no audit judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tasks.audits import deja_vu, density, forgetting, membership, relational, text, unique_feature
from tasks.audits.density.config import About as AboutDensity
from tasks.audits.density.config import Density
from tasks.audits.density.measures import summary as summarise_density
from tasks.audits.density.measures.distribution import Distribution, distribution
from tasks.audits.density.measures.scores import Scores
from tasks.audits.density.measures.scores import scores as density_scores
from tasks.audits.forgetting.config import About as AboutForgetting
from tasks.audits.forgetting.measures import summary as summarise_forgetting
from tasks.audits.forgetting.measures.decisions import decisions
from tasks.audits.forgetting.model_effects import Decisions
from tasks.audits.forgetting.presets import QUICKSTART as FORGETTING
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.membership.config import About as AboutMembership
from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.membership.given_config import AskedFile, FirstImages, GivenModel, ReturnedTable, Source
from tasks.audits.membership.measures import summary as summarise_membership
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.epsilon import AtDelta, epsilon
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.audits.relational.config import About as AboutRelational
from tasks.audits.relational.measures import summary as summarise_relational
from tasks.audits.relational.measures.evasions import COMMONEST
from tasks.audits.relational.presets import QUICKSTART as RELATIONAL
from tasks.audits.text.config import About as AboutText
from tasks.audits.text.documents.ranks import document_test, documents, estimates
from tasks.audits.text.measures import summary as summarise_text
from tasks.audits.text.presets import SMOKE as TEXT
from tasks.audits.text.question import Documents
from tasks.audits.text.secrets.ranks import Ranking as SecretRanking
from tasks.audits.text.secrets.ranks import secrets
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.family import single_family_rows
from tasks.audits.unique_feature.pairs.canary_verdicts import canary_verdicts
from tasks.audits.unique_feature.pairs.canary_verdicts import rows as canary_rows
from tasks.audits.unique_feature.population import ModelFamily
from tasks.audits.unique_feature.presets import PRESETS
from tasks.audits.unique_feature.questions import Panel
from tasks.contract.audit import Audit
from tasks.contract.job import NoSettings
from tasks.contract.measure import Tables
from tasks.contract.schemas import SUMMARY
from tasks.external.model_file import ModelFile
from tasks.worker.files import File
from tests.support.settings import with_settings
from tests.tasks.audits.deja_vu import simulated_encoders
from tests.tasks.audits.density import made_up as densities
from tests.tasks.audits.forgetting import made_up as confidences
from tests.tasks.audits.membership.made_up import make_answers, make_canaries, make_given
from tests.tasks.audits.relational import made_up as questions
from tests.tasks.audits.text.made_up import make_scores, question_of
from tests.tasks.audits.text.test_documents import CONFIG as DOCUMENTS
from tests.tasks.audits.text.test_documents import draw_scores
from tests.tasks.audits.unique_feature.made_up import family

Array = NDArray[np.float64]
Change = Callable[[Array], Array]  # of the model's outputs
Answered = tuple[object, object, pa.Table]  # the audit, a config and a summary
CHANGES: Mapping[str, Change] = {
    "constant": lambda values: np.full_like(values, 0.25),
    "rounded": lambda values: np.round(values / values.std(), 0) * values.std(),
}


def changed_column(table: pa.Table, name: str, change: Change) -> pa.Table:
    """The table with the change applied to a column of numbers or of lists of numbers."""
    column = table[name].combine_chunks()
    if pa.types.is_list(column.type):
        values = pa.array([change(np.array(row)).tolist() for row in column.to_pylist()], column.type)
    else:
        values = pa.array(change(column.to_numpy(zero_copy_only=False)), column.type)
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(name), values)


def membership_halves(change: Change) -> Answered:
    answers = []
    for answer in make_answers(16, 80, 0.0, 1):
        answers.append(changed_column(answer, "log_odds", change))
    tables = [records(ExactTest(0.05, 99, 0), answers), attacks(Matching(0), answers)]
    return (
        membership.AUDIT,
        Membership(Halves(models=16, examples=80)),
        summarise_membership(AboutMembership(0.05), tables),
    )


def membership_given(source: Source, change: Change) -> Answered:
    tables = make_given(24, 80, 0.0, 1, change=lambda phi, _: change(phi))
    ranking = Ranking(0.05, 80)
    summary = summarise_membership(AboutMembership(0.05), [ranks(ranking, tables), kinship(ranking, tables)])
    return membership.AUDIT, Membership(GivenModel(source, FirstImages(examples=80), 24)), summary


def membership_canaries(change: Change) -> Answered:
    tables = []
    for answer in make_canaries(0.0, None, canaries=100):
        tables.append(changed_column(answer, "log_odds", change))
    summary = summarise_membership(AboutMembership(0.05), [epsilon(AtDelta(1e-5), tables)])
    return membership.AUDIT, Membership(Canaries(models=1, canaries=100, examples=200)), summary


def unique_feature_pairs(change: Change) -> Answered:
    draws = np.random.default_rng(1)
    tables = []
    for canary in range(6):
        control = np.zeros((60, 2))
        canary_model = control + change(draws.normal(0, 0.01, (60, 2)))
        tables.append(family(canary, {"canary": canary_model, "twin": control}, 1, canary))
    rows = canary_rows(Tables([canary_verdicts(NoSettings(), tables)]), None)
    smoke = PRESETS["smoke"]
    return unique_feature.AUDIT, smoke, pa.Table.from_pylist(list(rows), SUMMARY)


def unique_feature_models(change: Change) -> Answered:
    odds = change(np.random.default_rng(1).normal(0, 1, (201, 3)))
    log_p = -np.logaddexp(0, -odds)
    about = {"canary": None, "label": 1, "seed": 1, "model": "given"}
    rows = single_family_rows([ModelFamily(about, np.zeros(201), log_p, odds)])
    return unique_feature.AUDIT, UniqueFeature(Panel()), pa.Table.from_pylist(list(rows), SUMMARY)


def forgetting_target(source: str, change: Change) -> Answered:
    calibration, target = confidences.audit(np.random.default_rng(3), images=100)
    outputs = np.stack([change(values) for values in target]).clip(0, 1)
    tables = []
    for kind, number, models in (("calibration", None, calibration), ("target", 0, outputs)):
        for replicate, values in enumerate(models):
            tables.append(confidences.table(kind, number, replicate, values, control=100))
    named_target = NamedTarget("a", source)  # type: ignore[arg-type]
    table = decisions(Decisions((named_target,), permutations=99), tables)
    return forgetting.AUDIT, FORGETTING, summarise_forgetting(AboutForgetting((named_target,)), [table])


def density_folds(change: Change) -> Answered:
    models = densities.folds(60, 4, 4)
    log_p = change(densities.noise(np.random.default_rng(1), 60, 4, 4, 4.0))
    fits = densities.fold_tables(models, {1: log_p})
    score_table = density_scores(Scores(models, 1, permutations=99, draws=4), fits)
    distribution_table = distribution(Distribution(models, (1,), draws=4, seed=1), fits)
    return density.AUDIT, Density(), summarise_density(AboutDensity(16, 0.01), [score_table, distribution_table])


def deja_vu_encoder(change: Change) -> Answered:
    draws = np.random.default_rng(1)
    images = simulated_encoders.draw_scenes(draws)
    crops, public = simulated_encoders.embed(images, draws)
    changed_embeddings = (change(crops).astype(np.float32), change(public).astype(np.float32))
    if len(np.unique(changed_embeddings[0])) > 1:  # rounding keeps most of 16 coordinates distinct, so only one is kept
        changed_embeddings = tuple(
            embeddings * (np.arange(embeddings.shape[1]) == 0) for embeddings in changed_embeddings
        )  # type: ignore[assignment]
    reference = simulated_encoders.embed(images, draws)
    tables = [
        simulated_encoders.neighbours(images, changed_embeddings, "A"),
        simulated_encoders.neighbours(images, reference, "B"),
    ]
    return deja_vu.AUDIT, simulated_encoders.CONFIG, simulated_encoders.summary_of(tables)


def text_secrets(change: Change) -> Answered:
    tables = []
    for scores in make_scores(0.0, 1):
        tables.append(changed_column(scores, "log_p", change))
    return text.AUDIT, TEXT, summarise_text(AboutText(0.05), [secrets(SecretRanking(0.05), tables)])


def text_documents(change: Change) -> Answered:
    score_tables = draw_scores(0.0, 1)
    changed_log_p = change(
        np.stack([scores["log_p"].to_numpy() for scores in score_tables])
    )  # rounds all models to the same grid
    tables = [
        changed_column(scores, "log_p", lambda _, values=values: values)  # type: ignore[misc]
        for scores, values in zip(score_tables, changed_log_p, strict=True)
    ]
    test = document_test(question_of(DOCUMENTS, Documents), DOCUMENTS)
    measured_tables = [documents(test, tables), estimates(test, tables)]
    return text.AUDIT, DOCUMENTS, summarise_text(AboutText(0.05), measured_tables)


def relational_reader(change: Change) -> Answered:
    """A reader that is trained here. Its answers are texts, so rounding makes an answer wrong rather than tied."""
    answers = np.round(change(np.random.default_rng(1).normal(0, 0.2, 400)), 6)
    share = np.unique(answers, return_counts=True)[1].max() / len(answers)
    commonest = pa.Table.from_pylist(
        [{"replicate": 0, "split": split, "questions": 400, "one_text": share} for split in ("train", "validation")],
        COMMONEST,
    )
    question_table = questions.memorization_of(questions.counted_scores((10, 100), (10, 100)))
    config = with_settings(RELATIONAL, negligible=0.2)
    return relational.AUDIT, config, summarise_relational(AboutRelational("numeric"), [question_table, commonest])


ROUTES: Mapping[str, Callable[[Change], Answered]] = {
    "membership, halves": membership_halves,
    "membership, a given file": lambda change: membership_given(AskedFile(ModelFile("m.pt")), change),
    "membership, a returned table": lambda change: membership_given(ReturnedTable(File("o.csv")), change),
    "membership, canaries": membership_canaries,
    "unique_feature, pairs": unique_feature_pairs,
    "unique_feature, models asked alone": unique_feature_models,
    "forgetting, trained here": lambda change: forgetting_target("training", change),
    "forgetting, a given file": lambda change: forgetting_target("model", change),
    "forgetting, a returned table": lambda change: forgetting_target("outputs", change),
    "density": density_folds,
    "deja_vu, a given encoder": deja_vu_encoder,
    "text, secrets": text_secrets,
    "text, documents": text_documents,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("route", ROUTES)
def test_constant_and_rounded_outputs_are_not_assessable(route: str, change: str) -> None:
    audit, config, summary = ROUTES[route](CHANGES[change])
    assert isinstance(audit, Audit)
    verdict = audit.answer(config, summary)
    assert verdict is not None
    assert verdict.answer == "not assessable", verdict.sentence


@pytest.mark.parametrize("route", ROUTES)
def test_unchanged_outputs_are_not_refused_for_ties(route: str) -> None:
    audit, config, summary = ROUTES[route](lambda values: values)
    assert isinstance(audit, Audit)
    verdict = audit.answer(config, summary)
    assert verdict is not None
    assert "pairs of scores" not in verdict.sentence


def test_constant_reader_answers_are_not_assessable() -> None:
    audit, config, summary = relational_reader(CHANGES["constant"])
    assert isinstance(audit, Audit)
    verdict = audit.answer(config, summary)
    assert verdict is not None
    assert verdict.answer == "not assessable", verdict.sentence
    assert "a fixed answer carries no information" in verdict.sentence
