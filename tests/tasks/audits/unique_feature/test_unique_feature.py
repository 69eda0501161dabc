import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from scipy import stats

from orchestrator.planning.plan import Plan
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.audits.unique_feature import AUDIT, PRESETS, UniqueFeature, plan, tiny
from tasks.audits.unique_feature.measures.divergences import DIVERGENCES, score
from tasks.audits.unique_feature.measures.family import pair_family
from tasks.audits.unique_feature.measures.learning_curve import HISTORY, history
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES, canary_scores
from tasks.audits.unique_feature.pairs.canary_verdicts import CANARY_VERDICTS, canary_verdicts, exact_verdicts
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.questions import Pairs, SelfInfluenceChoice
from tasks.audits.unique_feature.summary import summary
from tasks.audits.unique_feature.trainings import TwinTraining, train_twin, twin_training
from tasks.contract.job import Job, Roots
from tasks.contract.schemas import SUMMARY
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, glyph_pixels
from tasks.training.classifier import NearestImages, Training, batch_key, train
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.depth_first import tables

PRINTED = "table 1, mnist, mlp1, no regulariser"
SMOKE = with_settings(
    PRESETS["smoke"], data=pin(Dataset("digits")), probe=pin(Dataset("photos")), family=Family(count=20)
)


def pinned(config: UniqueFeature) -> UniqueFeature:
    (pinned_cell,) = pin_cells([Cell("unique_feature", config)], {})
    pinned_config: UniqueFeature = pinned_cell.config
    return pinned_config


def jobs(roots: Roots) -> list[Job]:
    """Every job of a plan once, inputs first."""
    return list(Plan.from_roots(roots).jobs.values())


def configs(roots: Roots, function: object) -> list[Any]:
    return [job.config for job in jobs(roots) if job.function is function]


def models(root: Job) -> tuple[Training, TwinTraining]:
    canary, control = (job.config for job in root.inputs)
    return canary, control


@pytest.fixture(scope="module")
def done() -> dict[str, pa.Table]:
    """The tables of the smoke preset, by key."""
    return {}


@pytest.fixture(scope="module")
def smoke(done: dict[str, pa.Table]) -> Mapping[str, pa.Table]:
    return tables(plan(SMOKE), done=done)


def test_quickstart_plans_a_twin_for_each_canary() -> None:
    roots = plan(pinned(PRESETS["quickstart"]))
    assert roots.keys() == {"summary", "canary_scores", "canary_verdicts", "divergences", "history"}
    functions = [job.function for job in jobs(roots)]
    expected_functions = (train, train_twin, score, history, pair_family, canary_scores, canary_verdicts, summary)
    assert [functions.count(function) for function in expected_functions] == [12, 12, 12, 12, 12, 1, 1, 1]
    trainings = configs(roots, train)
    control_trainings = [twin.training for twin in configs(roots, train_twin)]
    assert len(set(trainings)) == len(set(control_trainings)) == 12
    assert len({training.seed for training in (*trainings, *control_trainings)}) == 12


def test_twin_differs_only_by_the_canary() -> None:
    roots = plan(pinned(PRESETS["quickstart"]))
    assert isinstance(roots["divergences"], tuple)
    for root in roots["divergences"]:
        canary, twin = models(root)
        (burnt,) = canary.burnt
        assert root.config.canary == burnt.row
        assert Glyph() == burnt.feature
        assert twin_training(replace(canary, burnt=())) == twin


def test_pairs_leave_out_the_canarys_neighbours() -> None:
    config = with_settings(pinned(PRESETS["quickstart"]), one_seed=True, neighbours_left_out=10)
    roots = plan(config)
    assert isinstance(roots["divergences"], tuple)
    for root in roots["divergences"]:
        canary, twin = models(root)
        assert NearestImages(root.config.canary, 10) == canary.left_out
        assert twin_training(replace(canary, burnt=())) == twin
    # Canaries of one seed no longer share a clean training, but they share a call.
    control_trainings = [training.training for training in configs(roots, train_twin)]
    assert len(set(control_trainings)) == 12
    assert len({batch_key(twin) for twin in control_trainings}) == 1
    before = configs(plan(with_settings(config, neighbours_left_out=0)), train_twin)
    assert len({training.training for training in before}) == 1


def test_fewer_canaries_are_the_first_of_more() -> None:
    config = pinned(PRESETS["smoke"])
    many_evaluations = configs(plan(with_settings(config, canaries=300)), score)
    few_evaluations = configs(plan(config), score)
    assert few_evaluations == many_evaluations[:3]
    assert sorted(e.canary for e in many_evaluations) == list(range(300))
    assert configs(plan(config), train) == configs(plan(with_settings(config, canaries=300)), train)[:3]
    assert few_evaluations != configs(plan(replace(config, seed=1)), score)


def test_every_model_is_evaluated_with_the_same_seed() -> None:
    evaluations = configs(plan(pinned(PRESETS["quickstart"])), score)
    assert len({replace(e, canary=0) for e in evaluations}) == 1


def test_training_length_does_not_change_the_evaluation() -> None:
    config = pinned(PRESETS["smoke"])
    assert configs(plan(config), score) == configs(plan(with_settings(config, epochs=9, batch=7)), score)


def test_linked_trainings_keep_keys_and_tables() -> None:
    config = with_settings(pinned(PRESETS["smoke"]), choice="self-influence", with_feature=True, epochs=5)
    unbroken = Plan.from_roots(plan(with_settings(config, link=0)))
    linked = Plan.from_roots(plan(with_settings(config, link=2)))
    assert unbroken.roots == linked.roots
    assert dict(unbroken.after) == {}
    additional_jobs = linked.count(linked.jobs.keys() - unbroken.jobs.keys())
    training_counts = {}
    for task, count in unbroken.count().items():
        if task.rpartition(".")[2].startswith("train"):
            training_counts[task] = 2 * count
    assert set(training_counts) == {"unique_feature.train_ranked", "unique_feature.train_twin"}
    assert training_counts == dict(additional_jobs)


def test_null_preset_burns_another_feature_elsewhere() -> None:
    roots = plan(pinned(PRESETS["null"]))
    assert {e.feature for e in configs(roots, score)} == {Glyph()}
    carried = set()
    for training in configs(roots, train):
        for burnt in training.burnt:
            carried.add(burnt.feature)
    (glyph,) = carried
    assert isinstance(glyph, Glyph)
    assert glyph_pixels(glyph).sum() == glyph_pixels(Glyph()).sum()
    assert min(glyph.top, glyph.left) > Glyph().top + Glyph().size
    # One memorised canary of twelve could be called.
    assert len(configs(roots, exact_verdicts)) == 1
    # All other settings equal the quickstart's.
    quickstart = configs(plan(pinned(PRESETS["quickstart"])), train)
    assert {replace(training, burnt=()) for training in quickstart} == {
        replace(training, burnt=()) for training in configs(roots, train)
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"canaries": 1438}, "canaries is 1438; it must be at most 1437, the number of training images"),
        ({"examples": 5, "canaries": 6}, "canaries is 6; it must be at most 5, the number of training images"),
        ({"examples": 1438}, "examples is 1438; it must be at most 1437, the number of training images"),
        (
            {"examples": 60, "neighbours_left_out": 60},
            "neighbours_left_out is 60; it must be at most 59, the number of other training images",
        ),
        ({"feature": Glyph(left=24)}, "a feature of 5 x 5 at top 1, left 24 does not fit an image of 28 x 28"),
        ({"burnt": Glyph(size=30)}, "a feature of 30 x 30 at top 1, left 1 does not fit an image of 28 x 28"),
    ],
)
def test_unsuitable_data_are_refused(fields: dict[str, Any], message: str) -> None:
    config = with_settings(pinned(PRESETS["quickstart"]), fields)
    with pytest.raises(ValueError, match=r"must be|does not fit") as caught:
        plan(config)
    assert message == str(caught.value)


def test_published_numbers_need_the_published_setting() -> None:
    def published(**changes: Any) -> str:
        # Planning needs data; embedded sets replace the files under the published names.
        fields = {"data": Dataset("mnist", digits.digest), "probe": Dataset("cifar10", photos.digest)} | changes
        config = with_settings(PRESETS["table1-mnist"], fields)
        root = plan(config)["summary"]
        assert isinstance(root, Job)
        assert isinstance(root.config, PublishedCell)
        return root.config.cell

    digits = pin(Dataset("digits"))
    photos = pin(Dataset("photos"))
    load(digits)
    load(photos)
    assert published() == PRINTED
    assert published(seed=5) == PRINTED
    assert published(canaries=99) == ""
    assert published(learning_rate=1e-3) == ""
    assert published(burnt=Glyph(text="B")) == ""
    assert published(probe=Dataset("photos")) == ""


def test_the_published_preset_is_the_default() -> None:
    config = PRESETS["table1-mnist"]
    assert UniqueFeature() == config
    question = config.question
    training = question.training
    assert question.canaries == 100
    assert training.epochs == 500
    assert training.patience == 10
    assert training.learning_rate == 3e-4
    assert training.batch == 128
    assert question.data.name == "mnist"
    assert config.probe.name == "cifar10"
    assert config.feature == Glyph()


def test_smoke_gives_its_five_tables(smoke: Mapping[str, pa.Table]) -> None:
    schemas = {"summary": SUMMARY, "canary_scores": CANARY_SCORES, "divergences": DIVERGENCES, "history": HISTORY}
    schemas |= {"canary_verdicts": CANARY_VERDICTS}
    assert schemas.keys() == smoke.keys()
    for name, schema in schemas.items():
        assert smoke[name].schema.equals(schema)
    assert smoke["canary_scores"].num_rows == smoke["canary_verdicts"].num_rows == 3
    assert smoke["canary_scores"]["validation_accuracy"].null_count == 0
    assert set(smoke["history"]["model"].to_pylist()) == {"canary", "twin"}
    # Probe patches for each of six models, and the training images of the canary's label.
    assert smoke["divergences"]["images"].to_pylist().count("probe") == 6 * len(load(Dataset("photos")).test_images)


def test_training_images_of_the_canarys_label_are_evaluated(smoke: Mapping[str, pa.Table]) -> None:
    labels = load(Dataset("digits")).train_labels
    for canary in smoke["canary_scores"].to_pylist():
        image_rows = []
        for row in smoke["divergences"].to_pylist():
            if row["canary"] == canary["canary"] and row["images"] == "train" and row["model"] == "canary":
                image_rows.append(row["image"])
        assert labels[canary["canary"]] == canary["label"]
        expected = []
        for i in range(300):
            if labels[i] == canary["label"] and i != canary["canary"]:
                expected.append(i)
        assert expected == image_rows


def test_summary_follows_from_its_divergences(smoke: Mapping[str, pa.Table]) -> None:
    d = smoke["divergences"].to_pandas()
    d["m"] = d.d_u.astype(float) - d.d_r.astype(float)
    d["m_w"] = d.log_p_u.astype(float) - d.log_p_r.astype(float)
    scores = d.groupby(["canary", "model", "images"])[["m", "m_w"]].mean()
    summary_by_name = {(row["metric"], row["setting"]): row for row in smoke["summary"].to_pylist()}

    def mean_scores(score: str, model: str, images: str) -> Any:
        return scores[score].xs((model, images), level=("model", "images")).to_numpy()

    canary = mean_scores("m", "canary", "probe")
    control = mean_scores("m", "twin", "probe")
    row = summary_by_name["M", '{"model": "canary"}']
    assert [row["estimate"], row["null"], row["n"]] == pytest.approx([canary.mean(), control.mean(), 3])
    effects = {"{}": canary - control}
    for images in ("probe", "train"):
        effects[json.dumps({"images": images})] = mean_scores("m_w", "canary", images) - mean_scores(
            "m_w", "twin", images
        )
    for setting, effect in effects.items():
        row = summary_by_name["M effect" if setting == "{}" else "M_w effect", setting]
        low, high = stats.t.interval(0.95, 2, effect.mean(), stats.sem(effect))
        p_value = stats.ttest_1samp(effect, 0, alternative="greater").pvalue
        assert [effect.mean(), low, high, p_value] == pytest.approx(
            [row["estimate"], row["low"], row["high"], row["p_value"]]
        )
    row = summary_by_name["rate called memorised", '{"model": "twin", "test": "paired"}']
    probe = d[(d.model == "twin") & (d.images == "probe")]
    calls = []
    for _, g in probe.groupby("canary"):
        calls.append(stats.ttest_rel(g.d_u.astype(float), g.d_r.astype(float), alternative="greater").pvalue < 0.05)
    assert sum(calls) / 3 == row["estimate"]


def test_history_marks_the_kept_epoch(smoke: Mapping[str, pa.Table]) -> None:
    h = smoke["history"].to_pandas()
    for _, pair in h.groupby("canary"):
        epochs = pair[pair.model == "canary"]
        control = pair[pair.model == "twin"]
        assert epochs.epoch.tolist() == [1, 2, 3]
        assert epochs.validation_loss.idxmin() == epochs.index[epochs.kept][0]
        assert epochs.epoch[epochs.kept].tolist() == control.epoch[control.kept].tolist() == [len(control)]


def test_lost_model_removes_only_its_canary(smoke: Mapping[str, pa.Table], done: Mapping[str, pa.Table]) -> None:
    roots = plan(SMOKE)
    assert isinstance(roots["divergences"], tuple)
    lost_job = roots["divergences"][1]
    remaining_jobs = {key: job for key, job in Plan.from_roots(roots).jobs.items() if job is not lost_job.inputs[1]}
    models = {key: done[key] for key, job in remaining_jobs.items() if job.function in (train, train_twin)}
    partial_tables = tables(roots, lambda job: job is lost_job.inputs[1], models)
    assert partial_tables["canary_scores"].num_rows == 2
    assert {row["n"] for row in partial_tables["summary"].to_pylist() if row["metric"] == "M effect"} == {2}
    complete_rows = {row["canary"]: row for row in smoke["canary_scores"].to_pylist()}
    for row in partial_tables["canary_scores"].to_pylist():
        assert complete_rows[row["canary"]]["m_effect"] == row["m_effect"]
        assert row["canary"] != lost_job.config.canary


# The tables apart from the summary, by measure of pairs.
TABLES = {
    "scores": {"canary_scores", "canary_verdicts", "divergences", "history"},
    "family": {"canary_verdicts", "family", "detection", "curves", "panels"},
    "ranks": {"canary_verdicts", "exact_ranks", "exact_panels"},
}
QUESTIONS = {"course": {"course"}, "latents": {"latents"}, "pictures": {"contrast"}}


@pytest.mark.parametrize("preset", PRESETS)
def test_tables_follow_from_question_and_measures(preset: str) -> None:
    for config in AUDIT.cells(preset):
        small = pinned(tiny(config))
        question = small.question
        assert config.question.tag == question.tag
        assert config.feature == small.feature
        expected = {"summary"} | QUESTIONS.get(question.tag, set())
        if isinstance(question, Pairs):
            expected = expected.union(*(TABLES[measure] for measure in question.measures))
            expected |= {"regularised"} if question.beside_plain else set()
            expected |= {"private_ranks"} if question.training.guarantee is not None else set()
            if isinstance(question.choice, SelfInfluenceChoice):
                expected |= {"chosen", "influence"} | ({"traced"} if question.choice.with_feature else set())
        assert expected == AUDIT.plan(small).keys()


def test_models_of_unchanged_data_form_a_panel() -> None:
    panel = {"question": "panel", "data": "digits", "examples": 300, "epochs": 3, "seeds": 2, "probes": 30}
    config = pinned(with_settings(PRESETS["smoke"], panel, **{"family.count": 19}))
    roots = plan(config)
    assert roots.keys() == {"summary", "divergences", "family", "accuracies"}
    trainings = configs(roots, train)
    assert {training.burnt for training in trainings} == {()}
    assert len(set(trainings)) == 2
    panel_tables = tables(roots)
    assert panel_tables["family"].num_rows == 2 * 20
    rows = {row["metric"]: row for row in panel_tables["summary"].to_pylist()}
    assert rows["push towards a label"]["n"] == 2
    assert rows["push towards a label"]["unit"] == "model"
    assert rows["push towards a label"]["p_value"] >= 1 / 20
    assert AUDIT.verdict is not None
    assert AUDIT.verdict(config, panel_tables["summary"]).answer in ("memorised", "not detected", "undecided")
