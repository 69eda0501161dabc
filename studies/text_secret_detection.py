"""How often does `text` find planted secrets, by repetitions, and how often wrongly?

    python -m studies text_secret_detection [--tiny] [--quickstart] [--seed 36300] [--pairs 10] [--scores FOLDER]
                                            [--out FILE]
    python -m studies text_secret_detection --made-up [--tiny] [--seed 36300] [--out FILE]

Each pair of small GPTs is a separate audit with separate secrets, decided by the audit's rule. In the same number of
innocent pairs, the training texts contain other secrets in the same format. Innocent models are also audited with
secrets that no text contains. The control models, which were not trained on a secret, provide a third null. The GPTs
are SMALL. With `--quickstart`, they come from this preset, which takes ten times as long. With `--scores`, the models'
scores are stored in this folder and reused. With `--made-up`, no model is trained: log p is simulated, rounded to 1 nat
or constant, and only answers are counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from pyarrow import feather

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.text.answer import verdict
from tasks.audits.text.config import About, Text
from tasks.audits.text.measures import summary
from tasks.audits.text.presets import QUICKSTART, SMOKE
from tasks.audits.text.question import Continuation, Secrets
from tasks.audits.text.secrets.extraction import Extraction, extraction
from tasks.audits.text.secrets.models import PairModel, ask_secrets, pair_model, training_texts
from tasks.audits.text.secrets.ranks import Ranking, secrets
from tasks.audits.text.secrets.space import SCORES, draw_secrets
from tasks.audits.text.tuning import TextTuning
from tasks.datasets.catalog import pin
from tasks.language_models.fine_tuning import fine_tuned_on
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Reading
from tasks.numerics import seeds
from tasks.numerics.ranks import rank_p_value
from tasks.numerics.statistics import exact_interval, mean
from tests.tasks.audits.text.made_up import make_scores

Array = NDArray[np.float64]
SMALL = Text(
    Secrets(
        examples=20,
        secrets=12,
        references=239,
        reading=Reading(LanguageModel("tiny-gpt#32x1"), length=96),
        tuning=TextTuning(epochs=24, batch=16, learning_rate=5e-3),
    )
)
KINDS = ("secrets", "others")  # what the training texts of a pair contain
NEVER = 100  # unused secrets per innocent model
AMONG = 99  # references per secret
LEVELS = (0.01, 0.05, 0.2, 0.5)
SECONDS = b"seconds"  # table metadata key: processor seconds of a model


@dataclass(frozen=True)
class Pair:
    """Both models' scores of the pair's secrets (SCORES) and of unused secrets, by side."""

    config: Text
    scores: tuple[pa.Table, ...]
    never: tuple[pa.Table, ...]

    @property
    def seconds(self) -> float:
        return sum(float(item.schema.metadata[SECONDS]) for item in self.scores)


def question_of(config: Text) -> Secrets:
    assert isinstance(config.question, Secrets)
    return config.question


def kind_of(pair: Pair) -> str:
    return KINDS[question_of(pair.config).is_null]


def with_question(config: Text, **fields: Any) -> Text:
    """Return the configuration with these fields of its question replaced."""
    return replace(config, question=replace(question_of(config), **fields))


def train_pairs(config: Text, pairs: int, folder: Path | None) -> Iterator[Pair]:
    """Yield pairs of both kinds in turn, so that an interrupted study has equal numbers of each."""
    for number in range(pairs):
        for is_null in (False, True):
            yield train_pair(with_question(replace(config, seed=config.seed + number), is_null=is_null), folder)


def train_pair(config: Text, folder: Path | None) -> Pair:
    """Return the scores of both models in a pair. They are read from the folder if stored there."""
    scores = list[pa.Table]()
    never = list[pa.Table]()
    for side in range(2):
        kind = KINDS[question_of(config).is_null]
        names = []
        for subject in ("told", "never"):
            names.append(f"{kind}-{config.seed}-{side}-{subject}.arrow")
        paths = [] if folder is None else [folder / name for name in names]
        if not all(path.exists() for path in paths) or not paths:
            tables = train_model(config, side)
            for path, table in zip(paths, tables, strict=False):
                feather.write_feather(table, path)
        else:
            tables = tuple(feather.read_table(path) for path in paths)
        scores.append(tables[0])
        never.append(tables[1])
    return Pair(config, tuple(scores), tuple(never))


def train_model(config: Text, side: int) -> tuple[pa.Table, pa.Table]:
    """Return one model's scores of the secrets and, for an innocent model, of unused secrets (SCORES)."""
    its = pair_model(question_of(config), config.seed, 0, side)
    start = time.process_time()
    device = torch.device("cpu")
    secrets = draw_secrets(its)
    unused_secrets = never_put_in(its)
    with fine_tuned_on(its, training_texts(its, secrets), device) as model:
        scores = ask_secrets(its, model, secrets)
        alike = its.is_null
        if alike:
            never = ask_secrets(unused_secrets, model, draw_secrets(unused_secrets))
        else:
            never = SCORES.empty_table()
    seconds = str(time.process_time() - start).encode()
    return scores.replace_schema_metadata({SECONDS: seconds}), never


def never_put_in(config: PairModel) -> PairModel:
    """Return a question about secrets that no text contains."""
    draw = seeds.derive(config.draw, "never put in", config.side)
    return replace(config, secrets=NEVER, references=AMONG, draw=draw, extraction=False)


def audit_pair(pair: Pair) -> tuple[str, pa.Table, pa.Table]:
    """Return the answer about one pair of models, the table of secrets and the table of extraction."""
    config = pair.config
    continuation = question_of(config).extraction
    assert continuation is not None
    ways = Extraction(
        question_of(config).pattern, 2, continuation.attempts, continuation.probability, continuation.edit_distance
    )
    tables = secrets(Ranking(config.level), pair.scores), extraction(ways, pair.scores)
    return verdict(config, summary(About(config.level), tables)).answer, *tables


def describe_pairs(pairs: Sequence[Pair], repetitions: Sequence[int]) -> Iterator[str]:
    """Describe the results of one kind of pairs, by repetition count."""
    audited = [audit_pair(pair) for pair in pairs]
    answers = Counter(answer for answer, _, _ in audited)
    ranked = pa.concat_tables([ranks for _, ranks, _ in audited])
    extracted = pa.concat_tables([extraction_table for _, _, extraction_table in audited])
    answers_text = ", ".join(f"{name} {describe_share(count, len(pairs))}" for name, count in sorted(answers.items()))
    which = "Other secrets"
    if kind_of(pairs[0]) == "secrets":
        which = "The secrets"
    yield f"**{which} were in the training texts.** Of {len(pairs)} pairs, an audit each: {answers_text}."
    yield ""
    yield "| repetitions | secrets | found | p at most 5 % | exposure, bits | of the control model, bits |"
    yield "|---|---|---|---|---|---|"
    for times in repetitions:
        rows = ranked.filter(pc.equal(ranked["repetitions"], times))
        is_found = rows["found"].to_numpy(zero_copy_only=False)
        small = rows["p_value"].to_numpy() <= 0.05
        shares = []
        for item in (is_found, small):
            shares.append(describe_share(int(np.count_nonzero(item)), rows.num_rows))
        bits = [mean(rows[name].to_numpy()) for name in ("exposure", "exposure_control")]
        told_bits = [f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in bits]
        yield f"| {times} | {rows.num_rows} | {' | '.join([*shares, *told_bits])} |"
    yield ""
    yield from describe_extraction(extracted, repetitions)


def describe_extraction(extracted: pa.Table, repetitions: Sequence[int]) -> Iterator[str]:
    """Describe how many secrets a model and its control model reproduce when given their prefix."""
    ways = list(dict.fromkeys(extracted["way"].to_pylist()))
    yield f"| reproduced, by repetitions | {' | '.join(ways)} |"
    yield f"|---|{'---|' * len(ways)}"
    for times in repetitions:
        for column, by in (("reproduced", ""), ("reproduced_control", ", by the control model")):
            cells = []
            for way in ways:
                rows = extracted.filter(
                    pc.and_(pc.equal(extracted["repetitions"], times), pc.equal(extracted["way"], way))
                )
                cells.append(describe_share(rows[column].to_pylist().count(True), rows.num_rows))
            yield f"| {times}{by} | {' | '.join(cells)} |"
    yield ""


def describe_nulls(pairs: Sequence[Pair]) -> Iterator[str]:
    """Describe how often p is small for secrets that a model was not trained on, by kind."""
    secret_pairs = [pair for pair in pairs if kind_of(pair) == "secrets"]
    other_pairs = [pair for pair in pairs if kind_of(pair) == "others"]
    kinds = {
        "in no text, scored by models trained on others": p_values([t for pair in other_pairs for t in pair.never]),
        "replaced by others of the format": p_values([t for pair in other_pairs for t in pair.scores], of_twin=False),
        "trained on by the control model alone": p_values(
            [t for pair in secret_pairs for t in pair.scores], of_twin=True
        ),
    }
    yield (
        "| secrets that a model was not trained on | number | "
        + " | ".join(f"p at most {100 * index:g} %" for index in LEVELS)
        + " |"
    )
    yield f"|---|---|{'---|' * len(LEVELS)}"
    for name, p_values_of_kind in kinds.items():
        cells = []
        for index in LEVELS:
            cells.append(describe_share(int((p_values_of_kind <= index).sum()), len(p_values_of_kind)))
        yield f"| {name} | {len(p_values_of_kind):,} | {' | '.join(cells)} |"
    yield ""


def p_values(tables: Sequence[pa.Table], of_twin: bool | None = None) -> Array:
    """Return the p-values of ranks under control models, models trained on the secrets, or both (None)."""
    rows = [item for table in tables for item in table.to_pylist()]
    selected_rows = []
    for item in rows:
        if of_twin is None or item["inserted"] != of_twin:
            selected_rows.append(item)
    return np.array([rank_p_value(np.array(item["log_p"])) for item in selected_rows])


@dataclass(frozen=True)
class MadeUp:
    """Audits of simulated secrets that are likelier by `effect` nats, and a change to log p."""

    secrets: int
    references: int
    effect: float
    scores: str = "unchanged"
    audits: int = 100


CHANGES: Mapping[str, Callable[[Array], Array]] = {
    "unchanged": lambda log_p: log_p,
    "rounded to 1 nat": np.round,
    "constant": np.zeros_like,
}
MADE_UP = (
    *(MadeUp(100, 1999, effect, scores) for effect in (0.0, 0.5) for scores in ("unchanged", "rounded to 1 nat")),
    MadeUp(100, 1999, 0.0, "constant"),
    MadeUp(24, 499, 0.0),
    MadeUp(24, 499, 8.0),
    MadeUp(24, 499, 8.0, "constant"),
)
MADE_UP_ANSWERS = ("memorised", "not detected", "undecided", "below the relevant size", "not assessable")


def describe_made_up(cases: Sequence[MadeUp], seed: int) -> Iterator[str]:
    """Yield the answers in each case."""
    yield f"| secrets x candidates, likelier by, log p, audits | {' | '.join(MADE_UP_ANSWERS)} | not detected |"
    yield "|---" * (2 + len(MADE_UP_ANSWERS)) + "|"
    for number, case in enumerate(cases):
        config = Text(Secrets(secrets=case.secrets, references=case.references))
        answers: Counter[str] = Counter()
        for audit in range(case.audits):
            tables = make_scores(case.effect, seed + 1000 * number + audit, case.secrets, case.references)
            changed = []
            for table in tables:
                log_p = []
                for item in table["log_p"].to_pylist():
                    log_p.append(CHANGES[case.scores](np.array(item)).tolist())
                changed.append(table.set_column(table.column_names.index("log_p"), "log_p", pa.array(log_p)))
            ranked = secrets(Ranking(config.level), changed)
            answers[verdict(config, summary(About(config.level), [ranked])).answer] += 1
        cells = " | ".join(str(answers[answer]) for answer in MADE_UP_ANSWERS)
        name = f"{case.secrets} x {case.references + 1:,}, {case.effect:g} nats, {case.scores}, {case.audits}"
        yield f"| {name} | {cells} | {describe_share(answers['not detected'], case.audits)} |"


def describe_share(count: int, total: int) -> str:
    low, high = exact_interval(count, total)
    return f"{count} of {total}: {100 * count / total:.0f} [{100 * low:.0f}, {100 * high:.0f}] %"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--quickstart", action="store_true", help="use the GPTs of the preset quickstart")
    parser.add_argument("--made-up", action="store_true", help="count answers about simulated log p, without training")
    parser.add_argument("--seed", type=int, default=36300, help="of the first pair")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of either kind")
    parser.add_argument("--scores", type=Path, help="folder that stores the models' scores")
    options = parser.parse_args(arguments)
    if options.made_up:
        start = time.process_time()
        if options.tiny:
            cases = [replace(case, audits=2) for case in MADE_UP[:2]]
        else:
            cases = MADE_UP
        lines = list(describe_made_up(cases, options.seed))
        setting = measurement_facts("simulated", torch.device("cpu"))
        setting |= {"seeds": f"from {options.seed} on", "cost": f"{time.process_time() - start:.0f} s of a core"}
        publish_counts("Answers about secrets with simulated log p", setting, "\n".join(lines), options.out)
        return
    config = size(options.tiny, options.seed, options.quickstart)
    setting = measurement_facts("facts", torch.device("cpu"))
    question = question_of(config)
    pairs = list(train_pairs(config, 2 if options.tiny else options.pairs, options.scores))
    lines: list[str] = []
    for kind in KINDS:
        lines += describe_pairs([pair for pair in pairs if kind_of(pair) == kind], question.repetitions)
    setting |= {"model": str(question.reading.model), "texts": f"{question.examples}, {question.tuning.epochs} epochs"}
    setting |= {"seeds": f"{options.seed} to {options.seed + len(pairs) // 2 - 1}"}
    setting |= {"cost": f"{sum(pair.seconds for pair in pairs):.0f} s of a core"}
    publish_counts(
        "Detection of drawn secrets",
        setting,
        "\n".join([*lines, *describe_nulls(pairs)]),
        options.out,
    )


def size(tiny: bool, seed: int, quickstart: bool = False) -> Text:
    base = QUICKSTART if quickstart else SMALL
    if tiny:
        base = SMOKE
    return with_question(replace(base, seed=seed), data=pin(question_of(base).data), extraction=Continuation())
