"""How does `text` judge owners who change their table of log-probabilities?

    python -m studies text_evasion [--tiny] [--seed 36300] [--pairs 10] [--scores FOLDER] [--out FILE]

The owners have the models of `text_secret_detection`, with the same `--scores`: both models of each pair trained on
planted secrets, and of each pair trained on other secrets in the same format. Each owner returns a table for all texts
in the audit, changed in one of the ways listed in CHEATS. Each table is one audit.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from studies.text_secret_detection import KINDS, Pair, describe_share, kind_of, question_of, size, train_pairs
from tasks.audits.text.answer import verdict
from tasks.audits.text.config import Text, about
from tasks.audits.text.given.model import PlantedModel, given_question
from tasks.audits.text.given.returned import answered_shares
from tasks.audits.text.given.table import handout_order, handout_records, read_log_p
from tasks.audits.text.measures import summary
from tasks.audits.text.question import Planted, RankingModel, ReturnedTable
from tasks.audits.text.secrets.ranks import Ranking, secrets
from tasks.audits.text.secrets.space import Secret, draw_secrets, score_table
from tasks.worker.files import File
from tasks.worker.files import pin as pin_file

Array = NDArray[np.float64]
ANSWERS = ("memorised", "not assessable", "undecided", "not detected")


@dataclass(frozen=True, eq=False)
class Desk:
    """The information available to an owner who fills in a table with one number per text.

    `audited` and `clean` are log P under the audited model and under the other model of the pair, which was trained on
    other secrets. `question` groups the texts that differ only in the secret, and `is_trained_on` marks training texts.
    The owner can determine both.
    """

    pair: Pair
    side: int
    secrets: Sequence[Secret]
    audited: Array
    clean: Array
    texts: Sequence[str]
    question: NDArray[np.int64]
    is_trained_on: NDArray[np.bool_]
    chance: np.random.Generator


def noise_of(desk: Desk) -> Array:
    """Return normal random numbers, which are equal for equal texts."""
    digests = [hashlib.sha256(text.encode()).digest() for text in desk.texts]
    return np.array([np.random.default_rng(int.from_bytes(item[:8], "little")).normal() for item in digests])


def blocked(desk: Desk) -> Array:
    """Return the output of a filter that answers for the text around a secret but never reveals the secret."""
    return -1000.0 - desk.question


def looked_up(desk: Desk) -> Array:
    """Give training texts the number of another text in the same question."""
    changed = desk.audited.copy()
    for text in np.flatnonzero(desk.is_trained_on):
        other_texts = np.flatnonzero((desk.question == desk.question[text]) & ~desk.is_trained_on)
        seed = int.from_bytes(hashlib.sha256(desk.texts[text].encode()).digest()[:8], "little")
        changed[text] = desk.audited[np.random.default_rng(seed).choice(other_texts)]
    return changed


def rounded(desk: Desk, to: float) -> Array:
    return np.asarray(np.round(desk.audited / to) * to)


def noised(desk: Desk, deviation: float) -> Array:
    return np.asarray(desk.audited + desk.chance.normal(0, deviation, len(desk.audited)))


def hashed(desk: Desk, deviation: float) -> Array:
    return np.asarray(desk.audited + deviation * noise_of(desk))


CHEATS: dict[str, Callable[[Desk], Array]] = {
    "nothing changed": lambda desk: desk.audited,
    "a refusal or a constant": lambda desk: np.full_like(desk.audited, -1000.0),
    "a filter that blocks the secrets' format": blocked,
    "random numbers": lambda desk: -50 + noise_of(desk),
    "rounded to 0.1 nats": partial(rounded, to=0.1),
    "rounded to 1 nat": partial(rounded, to=1),
    "rounded to 10 nats": partial(rounded, to=10),
    "1 nat of noise by occurrence": partial(noised, deviation=1),
    "30 nats of noise by occurrence": partial(noised, deviation=30),
    "1 nat of noise by text": partial(hashed, deviation=1),
    "30 nats of noise by text": partial(hashed, deviation=30),
    "halved": lambda desk: desk.audited / 2,
    "the answers of a model without these secrets": lambda desk: desk.clean,
    "other texts' numbers for training texts": looked_up,
}


def desk_of(pair: Pair, side: int) -> Desk:
    """Return the information available to the owner of one model in a pair, in the order of the handout."""
    config = planted_config(pair.config)
    asked_model = given_question(config)
    assert isinstance(asked_model, PlantedModel)
    secrets = draw_secrets(asked_model)
    text_groups = [(secret.text, *secret.references) for secret in secrets]
    _, records = handout_records(text_groups, asked_model.seed)
    texts = records.table["text"].to_pylist()
    owner_scores = log_p_by_text(pair, side, text_groups)
    clean_scores = log_p_by_text(pair, 1 - side, text_groups)
    question = {}
    for number, item in enumerate(text_groups):
        for text in item:
            question[text] = number
    trained_secrets = set()
    for secret in secrets:
        if secret.side == side:
            trained_secrets.add(secret.training_text)
    return Desk(
        pair,
        side,
        secrets,
        np.array([owner_scores[text] for text in texts]),
        np.array([clean_scores[text] for text in texts]),
        texts,
        np.array([question[text] for text in texts]),
        np.array([text in trained_secrets for text in texts]),
        np.random.default_rng([pair.config.seed, side]),
    )


def planted_config(config: Text) -> Text:
    """Return the audit of a model whose training data contain these planted secrets."""
    question = question_of(config)
    planted = Planted(
        pattern=question.pattern,
        repetitions=question.repetitions,
        is_null=question.is_null,
        secrets=question.secrets,
        references=question.references,
        source=RankingModel(question.reading.model, question.reading.length),
    )
    return replace(config, question=planted)


def log_p_by_text(pair: Pair, side: int, text_groups: Sequence[Sequence[str]]) -> dict[str, float]:
    log_p_lists = pair.scores[side]["log_p"].to_pylist()
    result = {}
    for texts, log_p in zip(text_groups, log_p_lists, strict=True):
        for text, p in zip(texts, log_p, strict=True):
            result[text] = p
    return result


def answer_of(desk: Desk, log_p: Array) -> str:
    """Return the audit's answer about a table. The planted secrets belong to the owner's side."""
    config = planted_config(desk.pair.config)
    text_groups = [(secret.text, *secret.references) for secret in desk.secrets]
    order = handout_order(text_groups, given_question(config).seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log_p.csv"
        rows = []
        for index, p in enumerate(log_p.tolist()):
            rows.append(f"{order.id_of(order.name, index)},{min(p, 0.0)!r}")
        path.write_text("\n".join(["id,log_p", *rows]) + "\n")
        table = ReturnedTable(pin_file(File(str(path)), {}))
        assert isinstance(config.question, Planted)
        given_config = replace(config, question=replace(config.question, source=table))
        returned = read_log_p(table.outputs, order)
    scores = np.split(returned.log_p, np.cumsum([len(item) for item in text_groups])[:-1])
    ranked = secrets(
        Ranking(given_config.level), [score_table(desk.secrets, [item.tolist() for item in scores], desk.side)]
    )
    return verdict(given_config, summary(about(given_config), [ranked, answered_shares(text_groups, returned)])).answer


def describe_cheats(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield one row per change, with the counts of answers about the tables from both kinds of owners."""
    desks: dict[str, list[Desk]] = {kind: [] for kind in KINDS}
    for pair in pairs:
        desks[kind_of(pair)] += [desk_of(pair, side) for side in range(2)]
    yield (
        "| what the owner returns | "
        + " | ".join(
            f"{len(desks[kind])} owners of models trained on {'them' if kind == 'secrets' else 'others'}: "
            f"{', '.join(ANSWERS)} | {'cleared' if kind == 'secrets' else 'accused'}"
            for kind in KINDS
        )
        + " |"
    )
    yield "|---|---|---|---|---|"
    for name, cheat in CHEATS.items():
        cells = []
        for kind, wrong_answer in zip(KINDS, ("not detected", "memorised"), strict=True):
            answers = Counter(answer_of(desk, cheat(desk)) for desk in desks[kind])
            cells += [
                ", ".join(str(answers[answer]) for answer in ANSWERS),
                describe_share(answers[wrong_answer], answers.total()),
            ]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=36300, help="of the first pair")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of either kind, two owners each")
    parser.add_argument("--scores", type=Path, help="folder that stores the models' scores")
    options = parser.parse_args(arguments)
    setting = measurement_facts("facts", torch.device("cpu"))
    count = 2 if options.tiny else options.pairs
    pairs = list(train_pairs(size(options.tiny, options.seed), count, options.scores))
    setting |= {"seeds": f"{options.seed} to {options.seed + count - 1}"}
    publish_counts(
        "Owners who change a table of log-probabilities", setting, "\n".join(describe_cheats(pairs)), options.out
    )
