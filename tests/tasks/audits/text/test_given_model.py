"""Given models: adapters on a base, planted secrets and returned tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from numpy.typing import NDArray

import orchestrator
from orchestrator.planning.identity import key_of
from tasks.audits.text import AUDIT, probes, split
from tasks.audits.text.config import Text, about
from tasks.audits.text.given.model import PLANTED, questions, score_planted
from tasks.audits.text.given.returned import returned
from tasks.audits.text.measures import summary
from tasks.audits.text.presets import SMOKE
from tasks.audits.text.secrets.answer import LIMITS_OF_TABLES
from tasks.audits.text.secrets.ranks import Ranking, secrets
from tasks.audits.text.secrets.space import draw_secrets
from tasks.audits.text.trainings import trainings
from tasks.contract.verdict import NOT_ASSESSABLE
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.language_models.fine_tuning import fine_tuned_on
from tasks.language_models.language_model import LanguageModel, ModelError
from tasks.language_models.pretrained import byte_tokenizer, load_model, load_reader
from tasks.language_models.training import score_texts
from tasks.numerics.ranks import share_tied
from tasks.worker import files
from tasks.worker.files import File
from tests.support.shell import Here
from tests.tasks.audits.text.made_up import configure, pair_of, planted_of

TINY = LanguageModel("tiny-gpt#16x1")
SECRET = "0123456789abcdef0123456789abcdef"
NONCE = "00112233445566778899aabbccddeeff"
CONFIG = configure(model=TINY, question="planted", secrets=12, references=299, length=64)
Array = NDArray[np.float64]
Distortion = Callable[[Array, np.random.Generator], Array]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    prepared = load_reader(planted_of(CONFIG), torch.device("cpu"))
    prepared.module.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules="all-linear"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.5, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(folder)
    return folder


def test_adapter_is_merged_and_pinned_with_its_base(base: Path, adapter: Path) -> None:
    base_model = LanguageModel(f"folder:{base}").pin({})
    adapted_model = LanguageModel(f"folder:{base}+{adapter}").pin({})
    assert len({base_model.digest, adapted_model.digest}) == 2
    assert adapted_model.named().name == f"folder:{base.name}+{adapter.name}"
    assert {path.parent for path in adapted_model.paths()} == {base, adapter}
    tokens = torch.tensor([[1, 40, 41]])
    plain = load_model(replace(planted_of(CONFIG), model=base_model))[0]
    merged = load_model(replace(planted_of(CONFIG), model=adapted_model))[0]
    with torch.no_grad():
        assert not torch.allclose(plain(tokens).logits, merged(tokens).logits, atol=1e-3)
    assert not [name for name, _ in merged.named_parameters() if "lora" in name]


def test_bfloat16_and_checkpointing_give_similar_losses(base: Path) -> None:
    model = LanguageModel(f"folder:{base}").pin({})
    plain = pair_of(
        configure(SMOKE, data=pin(Dataset("facts")), model=model, adaptation="lora", learning_rate=1e-2), 0, 0
    )
    texts = ["The farm has 26 hens.", "The house is 51 feet high."] * 8
    losses = []
    for config in (plain, replace(plain, checkpointing=True), replace(plain, precision="bfloat16")):
        with fine_tuned_on(config, texts, torch.device("cpu")) as tuned:
            kinds = set()
            for name, weight in tuned.module.named_parameters():
                if "lora_" in name:
                    kinds.add(weight.dtype)
            losses.append(score_texts(config, tuned, texts[:2]).mean())
        assert kinds == {torch.float32}
    plain_loss, checkpointed_loss, bfloat16_loss = losses
    assert plain_loss == pytest.approx(checkpointed_loss, rel=1e-5)
    assert plain_loss == pytest.approx(bfloat16_loss, rel=0.05)


def test_adapter_without_base_or_weights_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"expected a model, got an adapter.*: folder:MODEL\+"):
        LanguageModel(f"folder:{adapter}").pin({})
    with pytest.raises(ModelError, match=r"expected adapter_config\.json\. Save the adapter there"):
        LanguageModel(f"folder:{base}+{tmp_path}").pin({})
    with pytest.raises(ModelError, match="there is no folder"):
        LanguageModel(f"folder:{base}+{tmp_path}/none").pin({})


def test_coin_selects_planted_secrets() -> None:
    config = configure(CONFIG, base=LanguageModel("tiny-gpt#32x1"))
    tables = [score_planted(job.config, ()) for job in trainings(config)]
    all_secrets = draw_secrets(planted_of(config))
    assert [secret.side == PLANTED for secret in all_secrets] == tables[0]["inserted"].to_pylist()
    assert not any(tables[1]["inserted"].to_pylist())
    ranked = secrets(Ranking(0.05), tables)
    planted_table = split(config).table
    assert planted_table is not None
    assert planted_table["secret"].to_pylist() == ranked["secret"].to_pylist()
    assert [secret.training_text for secret in all_secrets if secret.side == PLANTED] == planted_table[
        "text"
    ].to_pylist()
    assert not ranked["exposure_control"].null_count


def test_shared_scoring_has_equal_scores_under_another_key() -> None:
    jobs = []
    for scoring in ("whole", "shared"):
        jobs.append(trainings(configure(CONFIG, scoring=scoring))[0])
    whole_scores, shared_scores = (np.array(score_planted(job.config, ())["log_p"].to_pylist()) for job in jobs)
    np.testing.assert_allclose(whole_scores, shared_scores, rtol=1e-5)
    assert len({key_of(job, ()) for job in jobs}) == 2


@pytest.mark.parametrize("settings", [{"secret": SECRET}, {"secret": SECRET, "nonce": NONCE, "commitment": "0" * 64}])
def test_order_and_draw_follow_from_secret(settings: dict[str, str]) -> None:
    test_config = configure(CONFIG, **settings)
    by_seed = [replace(CONFIG, seed=seed) for seed in range(20)]
    ((name, records),) = probes(test_config)
    assert name not in {next(probes(seeded_config))[0] for seeded_config in by_seed}
    assert split(test_config).table != split(CONFIG).table
    ((other_name, other_records),) = probes(configure(test_config, secret=SECRET[::-1]))
    assert other_name != name
    assert other_records.as_dicts() != records.as_dicts()
    assert (split(CONFIG).warning != "", split(test_config).warning) == (True, "")


def test_owner_gets_all_texts_shuffled() -> None:
    ((name, records),) = probes(CONFIG)
    texts = []
    for candidates in questions(planted_of(CONFIG)):
        texts.extend(candidates)
    assert sorted(set(texts)) == sorted(set(records.table["text"].to_pylist()))
    assert len(records) == len(texts) + round(0.1 * len(texts))
    key = split(CONFIG).key
    assert records.ids == key["id"].to_pylist()
    assert all(id_.startswith(name) for id_ in records.ids)
    first = records.table["text"].filter(pc.equal(key["candidate"], 0))
    assert {candidates[0] for candidates in questions(planted_of(CONFIG))} == set(first.to_pylist())
    with pytest.raises(ValueError, match="question: expected identifiers, planted or comparison, got secrets"):
        next(probes(Text()))


def answer_of(config: Text, path: Path, distort: Distortion, gain: float) -> str:
    """Return the answer on a distorted table; planted secrets score higher by `gain` nats."""
    ((_, records),) = probes(config)
    texts = records.table["text"].to_pylist()
    planted = set()
    for secret in draw_secrets(planted_of(config)):
        if secret.side == PLANTED:
            planted.add(secret.text)
    rng = np.random.default_rng(config.seed)
    log_p_by_text = {}
    for text in sorted(set(texts)):
        log_p_by_text[text] = float(rng.normal(-40, 3)) + gain * (text in planted)
    log_p = np.minimum(distort(np.array([log_p_by_text[text] for text in texts]), rng), 0).tolist()
    path.write_text("id,log_p\n" + "".join(f"{id_},{p!r}\n" for id_, p in zip(records.ids, log_p, strict=True)))
    config_with_table = configure(config, outputs=files.pin(File(str(path)), {}))
    question = planted_of(config_with_table)
    tables = [secrets(Ranking(config_with_table.level), [score_planted(question, ())]), returned(question, ())]
    verdict = AUDIT.answer(config_with_table, summary(about(config_with_table), tables))
    assert verdict is not None
    assert LIMITS_OF_TABLES in verdict.limits
    return verdict.answer


DISTORTIONS: dict[str, Distortion] = {
    "none": lambda log_p, _chance: log_p,
    "refused": lambda log_p, _chance: np.full_like(log_p, -1e9),
    "rounded to 10 nats": lambda log_p, _chance: np.round(log_p, -1),
    "noise of 1 nat": lambda log_p, chance: log_p + chance.normal(0, 1, len(log_p)),
    "noise of 30 nats": lambda log_p, chance: log_p + chance.normal(0, 30, len(log_p)) - 100,
}


@pytest.mark.parametrize(
    ("distortion", "gain", "answers"),
    [
        ("none", 20.0, {"memorised"}),
        ("none", 0.0, {"not detected", "undecided"}),
        ("refused", 20.0, {NOT_ASSESSABLE}),
        ("refused", 0.0, {NOT_ASSESSABLE}),
        ("rounded to 10 nats", 0.0, {NOT_ASSESSABLE}),
        ("noise of 1 nat", 20.0, {"memorised"}),
        ("noise of 1 nat", 0.0, {NOT_ASSESSABLE}),
        ("noise of 30 nats", 20.0, {NOT_ASSESSABLE, "memorised"}),
    ],
)
def test_changed_table_never_clears_without_information(
    distortion: str, gain: float, answers: set[str], tmp_path: Path
) -> None:
    assert answer_of(CONFIG, tmp_path / "log_p.csv", DISTORTIONS[distortion], gain) in answers


def test_share_of_ties_is_one_for_equal_numbers() -> None:
    assert share_tied(np.zeros(5)) == 1.0
    assert share_tied(np.arange(5.0)) == 0.0


def test_public_page_contains_no_secret(tmp_path: Path, engram: Here) -> None:
    settings = [
        "question=planted",
        "pattern=Card {number}: {digits:8}, valid.",
        "secrets=6",
        "references=199",
        "seed=7",
    ]
    engram.json("probes", "text", *settings, "--out", "probes")
    lines = []
    for line in next((tmp_path / "probes").glob("texts-*.jsonl")).read_text().splitlines():
        lines.append(json.loads(line))
    split = next(tmp_path.rglob("*-split.csv")).read_text()
    texts = {record["id"]: record["text"] for record in lines}
    planted = {text for text in texts.values() if text in split}
    log_p = {}
    for index, text in enumerate(sorted(set(texts.values()))):
        log_p[text] = -1.0 if text in planted else -50 - index / 100
    rows = "".join(f"{name},{log_p[text]}\n" for name, text in texts.items())
    (tmp_path / "log_p.csv").write_text(f"id,log_p\n{rows}")
    run = engram.json("run", "text", *settings, "outputs=log_p.csv", "--address", "none", "--report", "--show-texts")
    private_page = Path(run["report"])
    public = private_page.with_name("report.html").read_text()
    codes = {text.partition(": ")[2].partition(",")[0] for text in planted}
    assert codes
    assert all(code in private_page.read_text() and code not in public for code in codes)
    assert "Found: secret" in public
    assert "rank 1 of 200" in public
    assert "--show-texts shows their texts" in public


def test_command_line_exports_and_judges_identifiers(tmp_path: Path, engram: Here) -> None:
    settings = ["--preset", "identifiers", "secrets=6", "references=199", "examples=40"]
    exported = engram.json("probes", "text", *settings, "--out", "probes")
    assert (tmp_path / exported["key"]).read_text().startswith('"id","question","candidate"\n')
    assert 'column "log_p"' in (tmp_path / "probes" / "README.txt").read_text()
    lines = next((tmp_path / "probes").glob("texts-*.jsonl")).read_text().splitlines()
    rng = np.random.default_rng(0)
    texts = {json.loads(line)["text"]: -float(rng.uniform(50, 90)) for line in lines}
    table = pa.table([[json.loads(line)["id"] for line in lines], [texts[json.loads(line)["text"]] for line in lines]],
                     names=["id", "log_p"])  # fmt: skip
    from pyarrow import parquet

    parquet.write_table(table, tmp_path / "log_p.parquet")
    run = orchestrator.run(
        "text", preset="identifiers", secrets=6, references=199, examples=40, outputs=str(tmp_path / "log_p.parquet"),
        store=tmp_path / "store", address="none", mlflow="off", report=False,
    )  # fmt: skip
    assert run.verdict is not None
    assert run.verdict.answer in ("not detected", "undecided")
    assert run.table("identifiers").num_rows == 6
    assert run.table("returned")["differing"][0].as_py() == 0.0
