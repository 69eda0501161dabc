"""How does `relational` judge owners who evade questions on corrupted contexts?

    python -m studies relational_evasion [--tiny] [--seed 5000] [--out FILE]

Owners answer blinded questions from `facts`, and the audit's tasks judge each owner separately. Simulated owners
remember 60 % of the training questions or none, answer 8 % of the others correctly by guessing, and draw wrong answers
from the answer distribution. Their answers for corrupted contexts are changed in one of several ways. Trained readers
are small T5 models fine-tuned on `facts-stated`, whose contexts contain the answers. Their answers are not changed.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import torch

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.relational.answer import verdict
from tasks.audits.relational.config import About, Given, Relational, Trained
from tasks.audits.relational.config import Answers as AnswersQuestion
from tasks.audits.relational.evaded_answers import read_evasions
from tasks.audits.relational.measures import summary
from tasks.audits.relational.measures.evasions import Comparison, evasions
from tasks.audits.relational.measures.memorization import Resampling, memorization
from tasks.audits.relational.measures.questions import Scoring, score
from tasks.audits.relational.measures.repeats import repeats
from tasks.audits.relational.presets import TINY_T5
from tasks.audits.relational.trainings import blind_questions, fine_tuning_config
from tasks.contract.summaries import index_rows
from tasks.datasets.catalog import load_questions, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Answer, Question
from tasks.external.blinded_questions import ReadBlindedAnswers, key_table, read_blinded_answers
from tasks.language_models.fine_tuning import fine_tune
from tasks.numerics.statistics import exact_interval
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import SETS
from tasks.training.privacy_config import LinkedTraining

Answers = Mapping[tuple[str, str], Answer]  # by set and question
ANSWERS = ("memorised", "not assessable", "undecided", "not detected")
RESAMPLES = 400
GUESSED = 0.08  # fraction of questions answered correctly by guessing
READ = 0.9  # fraction of questions with intact contexts answered correctly by reading
OWNERS = {"remembers 60 %": 0.6, "remembers nothing": GUESSED}
GERMAN = ("keine Angabe", "unbekannt", "steht nicht im Text")
FRENCH = ("non précisé", "inconnu", "pas indiqué")
UNLISTED = ("unsure", "I lack that detail", "the passage omits it", "sorry", "redaction", "left blank")
REFUSALS = (
    "not stated",
    "The context does not say.",
    "I cannot tell from this text",
    "unknown",
    "No number is given",
    "There is insufficient information",
)


@dataclass(frozen=True)
class Prompt:
    """The information for answering a corrupted context: the question, its set and the model's own answer.

    `drawn_answer` is drawn from the answer distribution; `commonest` is the most frequent correct answer.
    """

    question: Question
    set_name: str
    own_answer: str
    drawn_answer: str
    commonest: str
    is_remembered: bool
    chance: random.Random


# Answers for a corrupted context, by name.
CHANGES: Mapping[str, Callable[[Prompt], str]] = {
    "nothing changed": lambda prompt: prompt.own_answer,
    "“unknown”": lambda _: "unknown",
    "“42”": lambda _: "42",
    "nothing": lambda _: "",
    "one German refusal": lambda _: GERMAN[1],
    "three German refusals": lambda prompt: prompt.chance.choice(GERMAN),
    "three French refusals": lambda prompt: prompt.chance.choice(FRENCH),
    "refusals in six phrasings": lambda prompt: prompt.chance.choice(REFUSALS),
    "six other English phrasings": lambda prompt: prompt.chance.choice(UNLISTED),
    "“not stated (line 3)”": lambda prompt: f"not stated (line {prompt.chance.randint(1, 9)})",
    "“unknown” for half": lambda prompt: prompt.chance.choice(("unknown", prompt.own_answer)),
    "“unknown” for 92 %": lambda prompt: "unknown" if prompt.chance.random() < 0.92 else prompt.own_answer,
    "“unknown” for recognised training questions": lambda prompt: (
        "unknown" if prompt.set_name == "train-corrupted" else prompt.own_answer
    ),
    "“unknown” for what is remembered": lambda prompt: "unknown" if prompt.is_remembered else prompt.own_answer,
    "a likely number for what is remembered": lambda prompt: (
        prompt.drawn_answer if prompt.is_remembered else prompt.own_answer
    ),
    "one of four numbers": lambda prompt: prompt.chance.choice(("12", "23", "34", "42")),
    "the commonest number": lambda prompt: prompt.commonest,
    "a word of the context": lambda prompt: prompt.chance.choice(prompt.question.context.split()),
}


# Changes that are also tried for owners who remember nothing.
INNOCENT = (
    "nothing changed",
    "“unknown”",
    "“42”",
    "“unknown” for 92 %",
    "one of four numbers",
    "a word of the context",
)


@dataclass(frozen=True)
class Judged:
    """The answer about an owner, and the largest fraction of evaded answers in any question set."""

    answer: str
    evaded: float


@dataclass(frozen=True)
class Size:
    """The audits of simulated owners and of trained readers, the readers' training, and the number of each."""

    config: Relational
    readers: Relational
    training: Trained
    owners: int
    reader_count: int


def size(tiny: bool, seed: int, readers: int) -> Size:
    def ask(data: str, examples: int, held_out: int) -> Relational:
        system = Given(secret="0123456789abcdef0123456789abcdef")
        question = AnswersQuestion(pin(Dataset(data)), examples=examples, held_out=held_out, system=system)
        return Relational(question, seed)

    tuning = replace(TINY_T5.tuning, epochs=1 if tiny else 12, privacy=LinkedTraining())
    training = replace(TINY_T5, tuning=tuning, evaluation_interval=0)
    if tiny:
        return Size(ask("facts", 100, 60), ask("facts-stated", 60, 60), training, 2, readers)
    return Size(ask("facts", 600, 600), ask("facts-stated", 1200, 400), training, 20, readers)


def question_of(config: Relational) -> tuple[AnswersQuestion, Given]:
    """Return the audit's question and the audited system."""
    match config.question:
        case AnswersQuestion(system=Given() as system) as question:
            return question, system
    raise ValueError("the audit judges no given answers")


def drawn_answers(config: Relational, remembered: float, change: str, chance: random.Random) -> Answers:
    """Return the answers of an owner who remembers this fraction of the training questions."""
    question_config, _ = question_of(config)
    parts = question_config.selection.select(load_questions(question_config.data))
    golds = [question.golds[0] for question in parts["train"]]
    commonest = Counter(golds).most_common(1)[0][0][0]
    answers: dict[tuple[str, str], Answer] = {}
    for set_name, (split, corrupted) in SETS.items():
        right = READ
        if corrupted:
            right = remembered if split == "train" else GUESSED
        for question in parts[split]:
            knows = chance.random() < right
            distractor = chance.choice(golds)
            answer = question.golds[0] if knows else distractor
            corrupted_question = replace(question, context=question_config.corruption.corrupt_context(question))
            is_remembered = knows and split == "train" and remembered > GUESSED
            prompt = Prompt(corrupted_question, set_name, answer[0], distractor[0], commonest, is_remembered, chance)
            if corrupted:
                answers[set_name, question.id] = (CHANGES[change](prompt),)
            else:
                answers[set_name, question.id] = answer
    return answers


def reader_answers(size: Size, replicate: int) -> Answers:
    """Return the answers of a model fine-tuned on stated facts."""
    question, _ = question_of(size.readers)
    table = fine_tune(fine_tuning_config(question, size.training, size.readers.seed, replicate), ())
    names = {set_name: name for name, set_name in SETS.items()}
    answers = {}
    for row in table.to_pylist():
        answers[(names[row["split"], row["corrupted"]], row["id"])] = tuple(row["answer"]) or ("",)
    return answers


def judge(config: Relational, owner_answers: Answers) -> Judged:
    """Judge an owner: write the answer file, read it back and return the verdict."""
    question, system = question_of(config)
    blinding = blind_questions(question, system, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        sent_answers = {}
        for row in key_table(blinding).to_pylist():
            sent_answers[row["id"]] = list(owner_answers[row["set"], row["question"]])
        if load_questions(question.data).scorer == "squad":
            sent_answers = {id_: " ".join(spans) for id_, spans in sent_answers.items()}
        path = Path(folder) / "answers.json"
        path.write_text(json.dumps(sent_answers))
        predictions = Predictions(str(path)).pin({})
        given_config = replace(config, question=replace(question, system=replace(system, predictions=predictions)))
        reading = ReadBlindedAnswers(predictions, blinding)
        answers = read_blinded_answers(reading, ())
        scores = score(Scoring(question.data, 0), [answers])
        measured = [
            memorization(Resampling(question.data, RESAMPLES, config.seed), [scores]),
            repeats(reading, ()),
            evasions(Comparison(question.data), [answers]),
        ]
    summary_table = summary(About("numeric"), measured)
    evaded = [item.evaded for item in read_evasions(index_rows(summary_table))]
    return Judged(verdict(given_config, summary_table).answer, max(evaded))


def judge_owner(size: Size, change: str, owner: str, index: int) -> Judged:
    chance = random.Random(f"{size.config.seed} {change} {owner} {index}")
    return judge(size.config, drawn_answers(size.config, OWNERS[owner], change, chance))


def judge_reader(size: Size, index: int) -> Judged:
    judged = judge(size.readers, reader_answers(size, index))
    print(f"trained reader {index}: {judged}", flush=True)
    return judged


def counts(size: Size, pool: Executor) -> Iterator[tuple[str, list[Judged]]]:
    """Yield the verdicts on the owners in each row."""
    # These come first because they take longest.
    readers = []
    for index in range(size.reader_count):
        readers.append(pool.submit(judge_reader, size, index))
    owners = {}
    for change in CHANGES:
        for owner, share in OWNERS.items():
            if change in INNOCENT or share != GUESSED:
                calls = []
                for index in range(size.owners):
                    calls.append(pool.submit(judge_owner, size, change, owner, index))
                owners[f"{owner}; {change}"] = calls
    for name, judged in {**owners, "trained reader": readers}.items():
        yield name, [item.result() for item in judged]


def markdown(results: Sequence[tuple[str, list[Judged]]]) -> str:
    lines = [
        f"| owner; answers for corrupted contexts | {', '.join(ANSWERS)} | not detected | not assessable | "
        "evaded answers |",
        "|---|---|---|---|---|",
    ]
    for name, owners in results:
        if not owners:
            continue
        counted = Counter(owner.answer for owner in owners)
        cells = []
        for answer in ("not detected", "not assessable"):
            low, high = exact_interval(counted[answer], len(owners))
            share = 100 * counted[answer] / len(owners)
            cells.append(f"{share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]")
        evaded = [100 * owner.evaded for owner in owners]
        cells.append(f"{min(evaded):.0f} to {max(evaded):.0f} %")
        lines.append(f"| {name} | {', '.join(str(counted[answer]) for answer in ANSWERS)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "Brackets: exact 95 % intervals (Clopper-Pearson)."]) + "\n"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=5000, help="of the owners and of the order of the questions")
    parser.add_argument("--readers", type=int, default=20, help="number of trained readers, one minute of a core each")
    parser.add_argument("--processes", type=int, default=2, help="number of processes that judge owners")
    options = parser.parse_args(arguments)
    study_size = size(options.tiny, options.seed, options.readers)
    setting = measurement_facts("facts, facts-stated", torch.device("cpu")) | {"seed": str(options.seed)}
    with ProcessPoolExecutor(options.processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        table = markdown(list(counts(study_size, pool)))
    publish_counts("Owners who evade questions", setting, table, options.out)
