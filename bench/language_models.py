"""How fast language models are fine-tuned and answer here, beside transformers' own Trainer and `generate`.

    python -m bench.language_models [--tiny] [--kind t5|gpt] [--device cpu|cuda] [--out bench/results/NAME.md]

Both train the same model on the same questions for an epoch, in minibatches of the same size; everything else of the
Trainer is at its defaults (AdamW, minibatches by chance, padded to their longest). `generate` decodes the same
questions at its defaults, greedily, in minibatches of that size in the order given, until all answers of a minibatch
have ended. Candidates of a secret are scored by what they share read once (`scoring=shared`), beside each read whole.
Tokens are those of prompts and answers without padding. Here minibatches are of one length, AdaFactor
steps, and as many prompts are decoded at once as have 8,192 tokens on a CPU and 131,072 on a GPU.

On a CPU both have one thread; ratios are of median CPU times of the same run, and wall times stand beside them. The
questions are the embedded `facts`, the models of the sizes named, with random weights.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.measuring import Row, Run, bench_parser, publish
from measurement.report import measurement_facts
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.facts import Facts
from tasks.datasets.questions.question import Question
from tasks.external.weights import silence_transformers
from tasks.language_models.fine_tuning_config import Adaptation, FineTuning
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.pretrained import prepare_model, training_texts
from tasks.language_models.sequence_model import IGNORED, EncoderDecoder, Tokens
from tasks.language_models.training import FineTuner, decode_answers, encode_questions, score_candidates, score_texts
from tasks.training.fit import read_losses
from tasks.worker import hardware


@dataclass(frozen=True)
class Size:
    model: str
    questions: int
    batch: int
    rounds: int
    adaptation: Adaptation = "full"

    def __str__(self) -> str:
        way = " by lora" if self.adaptation == "lora" else ""
        return f"{self.model}{way}, {self.questions:,} questions, batch {self.batch}"


FULL = {
    "cpu": (
        Size("tiny-t5#64x2", 1024, 32, 3),
        Size("tiny-t5#512x6", 32, 16, 1),
        Size("tiny-gpt#64x2", 256, 32, 3),
        Size("tiny-gpt#64x2", 256, 32, 3, "lora"),
    ),
    "cuda": (
        Size("tiny-t5#64x2", 3000, 128, 3),
        Size("tiny-t5#512x6", 3000, 128, 3),
        Size("tiny-gpt#512x6", 3000, 128, 3),
        Size("tiny-gpt#512x6", 3000, 128, 3, "lora"),
    ),
}
TINY = (Size("tiny-t5#16x1", 24, 8, 1), Size("tiny-gpt#16x1", 24, 8, 1), Size("tiny-gpt#16x1", 24, 8, 1, "lora"))
LENGTH, ANSWER = 512, 32
CANDIDATES = [f"Patient 7: code {number:06}." for number in range(500)]
CLOCKS: dict[str, Callable[[], float]] = {"CPU": time.process_time, "wall": time.perf_counter}


class Bench:
    """A model to train and to ask here, and another of the same weights for transformers."""

    def __init__(self, size: Size, place: torch.device) -> None:
        self.size, self.place = size, place
        self.config = FineTuning(
            Dataset("facts"),
            LanguageModel(size.model),
            adaptation=size.adaptation,
            batch=size.batch,
            length=LENGTH,
            answer_length=ANSWER,
        )
        self.questions: Sequence[Question] = Facts("facts").questions().train[: size.questions]
        texts = training_texts(self.questions)
        self.model = prepare_model(self.config, texts, place)
        self.training = FineTuner(self.config, self.model, encode_questions(self.config, self.model, self.questions))
        self.theirs = prepare_model(self.config, texts, place)
        self.epoch = 0

    @property
    def trained(self) -> int:
        """The tokens of an epoch."""
        return sum(map(len, self.training.prompts)) + sum(map(len, self.training.targets))

    def train(self) -> None:
        self.epoch += 1
        read_losses(self.training.take_steps(self.epoch), 0, 0)

    def train_by_trainer(self) -> None:
        from transformers import DataCollatorForSeq2Seq, PrinterCallback, Trainer, TrainingArguments

        rows = list(map(self.example, self.training.prompts, self.training.targets))
        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                folder,
                num_train_epochs=1,
                per_device_train_batch_size=self.size.batch,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=self.place.type == "cpu",
            )
            collator = DataCollatorForSeq2Seq(self.theirs.tokenizer, self.theirs.module)
            trainer = Trainer(self.theirs.module, settings, train_dataset=rows, data_collator=collator)  # type: ignore[arg-type]
            trainer.remove_callback(PrinterCallback)
            trainer.train()

    def example(self, prompt: Tokens, target: Tokens) -> dict[str, Tokens]:
        """What the Trainer is given: a decoder-only model reads both, and its loss is of the target alone."""
        if isinstance(self.model, EncoderDecoder):
            return {"input_ids": prompt, "labels": target}
        return {"input_ids": prompt + target, "labels": [IGNORED] * len(prompt) + target}

    def score_shared(self) -> None:
        score_candidates(self.config, self.model, CANDIDATES)

    def score_whole(self) -> None:
        score_texts(self.config, self.model, CANDIDATES)

    def answer(self) -> list[str]:
        return decode_answers(self.model, self.training.prompts, ANSWER)

    def answer_by_generate(self) -> list[str]:
        module, tokenizer = self.model.module.eval(), self.model.tokenizer
        texts: list[str] = []
        left = not isinstance(self.model, EncoderDecoder)
        with torch.inference_mode():
            for start in range(0, len(self.training.prompts), self.size.batch):
                prompts = self.training.prompts[start : start + self.size.batch]
                read, mask = self.model.pad_rows(prompts, self.model.padding, left), self.model.mask(prompts, left)
                tokens = module.generate(read, attention_mask=mask, max_new_tokens=ANSWER)
                texts += tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts


def rows(tiny: bool, kind: str, place: torch.device) -> Iterator[Row]:
    """Tokens per second of training and of answering, for each size of models of a kind; empty: of all."""
    for size in (each for each in (TINY if tiny else FULL[place.type]) if kind in each.model):
        bench = Bench(size, place)
        tokens = bench.trained
        trained = timed({"ours": bench.train, "theirs": bench.train_by_trainer}, size.rounds, place)
        yield row(f"training, {size}", tokens, trained, "Trainer at its defaults")
        # The model has been trained: its answers end.
        answered = timed({"ours": bench.answer, "theirs": bench.answer_by_generate}, size.rounds, place)
        yield row(f"answering, {size}", sum(map(len, bench.training.prompts)), answered, "generate at its defaults")
        if not isinstance(bench.model, EncoderDecoder):
            tokens = sum(map(len, bench.model.encode_texts(CANDIDATES, LENGTH)))
            scored = timed({"ours": bench.score_shared, "theirs": bench.score_whole}, size.rounds, place)
            yield row(f"scoring {len(CANDIDATES)} candidates, {size}", tokens, scored, "each of them read whole")


def row(what: str, tokens: int, seconds: dict[str, dict[str, float]], rival: str) -> Row:
    def told(name: str) -> str:
        return ", ".join(f"{tokens / taken:,.0f} tokens/s ({clock})" for clock, taken in seconds[name].items())

    judged = next(iter(seconds["ours"]))
    ratio = seconds["theirs"][judged] / seconds["ours"][judged]
    return Row(what, told("ours"), f"{told('theirs')}, {rival}", ratio)


def timed(runs: dict[str, Run], rounds: int, place: torch.device) -> dict[str, dict[str, float]]:
    """The median seconds of each run by clock, all of them once per round after one that does not count.

    On a GPU the wall is the only clock.
    """
    clocks = CLOCKS if place.type == "cpu" else {"wall": CLOCKS["wall"]}
    taken: dict[str, list[list[float]]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            began = [clock() for clock in clocks.values()]
            run()
            if place.type == "cuda":
                torch.cuda.synchronize()
            if number:
                taken[name].append([clock() - start for clock, start in zip(clocks.values(), began, strict=True)])
    return {
        name: dict(zip(clocks, map(statistics.median, zip(*times, strict=True)), strict=True))
        for name, times in taken.items()
    }


def main() -> None:
    given = bench_parser(__doc__)
    given.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given.add_argument("--kind", choices=("t5", "gpt"), default="", help="both where it is not given")
    asked = given.parse_args()
    place = torch.device(asked.device)
    import transformers

    setting: dict[str, Any] = measurement_facts("facts", place)
    setting["versions"] += f", transformers {transformers.__version__}"
    with hardware.exactly(place), silence_transformers():
        publish("Fine-tuning language models", setting, list(rows(asked.tiny, asked.kind, place)), asked.out)


if __name__ == "__main__":
    main()
