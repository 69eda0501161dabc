"""How often does `text` find inserted documents, compared with a base model without them, and how often wrongly?

    python -m studies text_document_detection [--tiny] [--seed 9200] [--pairs 20] [--out FILE]

Each pair is a separate audit of two small GPTs by the audit's rule. The model is trained on common texts and on
documents repeated a random number of times. The base model is trained on the common texts alone. In the same number of
innocent pairs, the model is trained on other documents from the same template, with the same repetition counts.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from studies.text_secret_detection import describe_share
from tasks.audits.text.answer import verdict
from tasks.audits.text.config import Text, about
from tasks.audits.text.documents import insertions
from tasks.audits.text.documents.models import insertion_jobs, score_insertions
from tasks.audits.text.documents.ranks import document_test
from tasks.audits.text.measures import summary
from tasks.audits.text.question import Insertions, Secrets
from tasks.audits.text.secrets.models import PairModel, pair_model
from tasks.audits.text.tuning import TextTuning
from tasks.contract.job import Job
from tasks.datasets.catalog import load_texts, pin
from tasks.datasets.dataset import Dataset
from tasks.language_models.fine_tuning import fine_tuned_on
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Reading
from tasks.numerics import seeds
from tasks.worker import hardware

KINDS = {"inserted": "The documents were inserted", "others": "Other documents of the same template were inserted"}
REPETITIONS = (1, 4, 16)


@dataclass(frozen=True)
class Size:
    model: str
    common: int  # texts on which all models are trained
    documents: int  # audited documents, half of which are inserted
    epochs: int


FULL = Size("tiny-gpt#32x1", 40, 120, 8)
TINY = Size("tiny-gpt#16x1", 10, 40, 1)
LENGTH = 80  # characters per text


def split_texts(size: Size, seed: int) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Draw the common texts, the audited documents, and other documents from the same template."""
    texts = [text[:LENGTH] for text in load_texts(pin(Dataset("facts")))]
    shuffled = []
    for row in seeds.generator(seed, "texts").permutation(len(texts)):
        shuffled.append(texts[row])
    first, second = size.common, size.common + size.documents
    return shuffled[:first], shuffled[first:second], shuffled[second : second + size.documents]


def draw_repetitions(size: Size, seed: int) -> list[int]:
    """Draw each document's repetition count in random order: 0 for half of them, REPETITIONS in turn for the others."""
    half = size.documents // 2
    turns = np.concatenate([np.zeros(size.documents - half, dtype=np.int64), np.resize(REPETITIONS, half)])
    order: list[int] = seeds.generator(seed, "insertions").permutation(turns).tolist()
    return order


def save_model(config: PairModel, texts: Sequence[str], folder: Path) -> LanguageModel:
    """Train a model on these texts and save it to the folder."""
    device = hardware.device()
    with hardware.exactly(device), fine_tuned_on(config, texts, device) as model:
        for part in (model.module, model.tokenizer):
            part.save_pretrained(folder)
    return LanguageModel(f"folder:{folder}").pin({})


def audit_pair(size: Size, kind: str, seed: int, folder: Path) -> tuple[str, pa.Table]:
    """Return the answer about one pair of models, and its table of documents."""
    common, documents, other_documents = split_texts(size, seed)
    repetitions = draw_repetitions(size, seed)
    inserted_documents = documents if kind == "inserted" else other_documents
    reading = Reading(LanguageModel(size.model), length=LENGTH + 40)
    trained_question = Secrets(reading=reading, tuning=TextTuning(epochs=size.epochs, learning_rate=5e-3))
    training = pair_model(trained_question, seed, 0, 0)
    inserted = []
    for text, times in zip(inserted_documents, repetitions, strict=True):
        for _ in range(times):
            inserted.append(text)
    model = save_model(training, [*common, *inserted], folder / "model")
    base = save_model(replace(training, seed=training.seed + 1), common, folder / "base")
    records = folder / "documents.jsonl"
    rows = []
    for row, (text, times) in enumerate(zip(documents, repetitions, strict=True)):
        rows.append({"id": str(row), "text": text, "duplicates": times})
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = Insertions(
        data=pin(Dataset(f"records:{records}")),
        reading=replace(reading, model=model),
        base=base,
        prefix=LENGTH // 2,
        suffix=LENGTH // 2,
    )
    return answer_pair(question, seed)


def answer_pair(question: Insertions, seed: int) -> tuple[str, pa.Table]:
    config = Text(question, seed=seed)
    jobs = insertion_jobs(question, seed)
    test = document_test(question, config)
    scores = [score_insertions(job.config, ()) for job in jobs]
    document_table = insertions.insertions(test, scores)
    control = insertions.plan_control(config, jobs)
    assert isinstance(control, Job)
    tables = [document_table, insertions.insertion_estimates(test, scores), control.function(control.config, ())]
    return verdict(config, summary(about(config), tables)).answer, document_table


def describe_pairs(kind: str, answers: Counter[str], table: pa.Table) -> Iterator[str]:
    """Describe the results of one kind of pairs, by repetition count."""
    yield f"**{KINDS[kind]}.** Of {answers.total()} pairs: {', '.join(f'{name} {n}' for name, n in answers.items())}."
    yield ""
    yield "| repetitions | documents | found | p at most 5 % | written by the model (near) | by its base |"
    yield "|---|---|---|---|---|---|"
    for times in (0, *REPETITIONS):
        rows = table.filter(pc.equal(table["repetitions"], times))
        tested = [rows["found"].to_pylist(), [p is not None and p <= 0.05 for p in rows["p_value"].to_pylist()]]
        shares = []
        for item in tested:
            shares.append(describe_share(sum(item), rows.num_rows) if times else "")
        shares += [
            describe_share(int(np.nansum(rows[name].to_numpy())), rows.num_rows)
            for name in ("near_verbatim", "near_verbatim_control")
        ]
        yield f"| {times} | {rows.num_rows} | {' | '.join(shares)} |"
    yield ""


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=9200, help="of the first pair")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of either kind")
    options = parser.parse_args(arguments)
    size, pairs = (TINY, 2) if options.tiny else (FULL, options.pairs)
    setting = measurement_facts("facts", torch.device("cpu"))
    lines = list[str]()
    start = time.process_time()
    for kind in KINDS:
        answers = Counter[str]()
        tables = list[pa.Table]()
        for number in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                answer, table = audit_pair(size, kind, options.seed + number, Path(folder))
            answers[answer] += 1
            tables.append(table)
        lines += describe_pairs(kind, answers, pa.concat_tables(tables))
    setting |= {"seeds": f"{options.seed} to {options.seed + pairs - 1}"}
    setting |= {"cost": f"{time.process_time() - start:.0f} s of a core"}
    publish_counts("Inserted documents, compared with a base without them", setting, "\n".join(lines), options.out)
