"""Speed of fine-tuning and answering by language models, compared with transformers' Trainer and `generate`.

    python -m bench.language_models [--tiny] [--kind t5|gpt] [--device cpu|cuda] [--out bench/results/NAME.md]

Both train the same model on the same questions for one epoch, in minibatches of the same size. The Trainer otherwise
has its default settings (AdamW, random minibatches padded to the longest text). `generate` decodes the same questions
greedily at its defaults, in minibatches of this size in the given order, until all answers in a minibatch have ended.
Engram uses AdaFactor and minibatches of texts with equal length, and it decodes prompts with a total of 8,192 tokens at
once on a CPU and 131,072 on a GPU. Scoring the candidates for a secret after reading their common prefix once
(`scoring=shared`) is compared with reading each candidate in full. Token counts include prompts and answers, without
padding.

On a CPU, both use one thread, and ratios compare median CPU times from the same run, followed by wall times. The
questions are the embedded `facts`. The models have random weights.
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
LENGTH = 512
ANSWER = 32
CANDIDATES = [f"Patient 7: code {number:06}." for number in range(500)]
CLOCKS: dict[str, Callable[[], float]] = {"CPU": time.process_time, "wall": time.perf_counter}


class Bench:
    """A model for Engram, and one with the same weights for transformers."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size = size
        self.device = device
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
        self.model = prepare_model(self.config, texts, device)
        self.training = FineTuner(self.config, self.model, encode_questions(self.config, self.model, self.questions))
        self.rival = prepare_model(self.config, texts, device)
        self.epoch = 0

    @property
    def token_count(self) -> int:
        """The number of tokens in an epoch."""
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
                use_cpu=self.device.type == "cpu",
            )
            collator = DataCollatorForSeq2Seq(self.rival.tokenizer, self.rival.module)
            trainer = Trainer(self.rival.module, settings, train_dataset=rows, data_collator=collator)  # type: ignore[arg-type]
            trainer.remove_callback(PrinterCallback)
            trainer.train()

    def example(self, prompt: Tokens, target: Tokens) -> dict[str, Tokens]:
        """Return an example for the Trainer.

        A decoder-only model reads both texts and has a loss only on the target.
        """
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
        module = self.model.module.eval()
        tokenizer = self.model.tokenizer
        texts: list[str] = []
        pads_left = not isinstance(self.model, EncoderDecoder)
        with torch.inference_mode():
            for start in range(0, len(self.training.prompts), self.size.batch):
                prompts = self.training.prompts[start : start + self.size.batch]
                padded = self.model.pad_rows(prompts, self.model.padding, pads_left)
                mask = self.model.mask(prompts, pads_left)
                tokens = module.generate(padded, attention_mask=mask, max_new_tokens=ANSWER)
                texts += tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts


def rows(tiny: bool, kind: str, device: torch.device) -> Iterator[Row]:
    """Measure tokens per second of training and answering, for each model size of this kind.

    An empty kind selects all sizes.
    """
    sizes = TINY if tiny else FULL[device.type]
    for size in [size for size in sizes if kind in size.model]:
        bench = Bench(size, device)
        tokens = bench.token_count
        training_seconds = timed({"engram": bench.train, "rival": bench.train_by_trainer}, size.rounds, device)
        yield row(f"training, {size}", tokens, training_seconds, "Trainer at its defaults")
        # The model has been trained, so its answers end.
        answering_seconds = timed({"engram": bench.answer, "rival": bench.answer_by_generate}, size.rounds, device)
        yield row(
            f"answering, {size}", sum(map(len, bench.training.prompts)), answering_seconds, "generate at its defaults"
        )
        if not isinstance(bench.model, EncoderDecoder):
            tokens = sum(map(len, bench.model.encode_texts(CANDIDATES, LENGTH)))
            scoring_seconds = timed({"engram": bench.score_shared, "rival": bench.score_whole}, size.rounds, device)
            yield row(
                f"scoring {len(CANDIDATES)} candidates, {size}", tokens, scoring_seconds, "each candidate read entirely"
            )


def row(subject: str, tokens: int, seconds: dict[str, dict[str, float]], rival: str) -> Row:
    def describe(run: str) -> str:
        return ", ".join(f"{tokens / elapsed:,.0f} tokens/s ({clock})" for clock, elapsed in seconds[run].items())

    judged = next(iter(seconds["engram"]))
    ratio = seconds["rival"][judged] / seconds["engram"][judged]
    return Row(subject, describe("engram"), f"{describe('rival')}, {rival}", ratio)


def timed(runs: dict[str, Run], rounds: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Return the median seconds of each run by clock.

    Every run is timed once per round, after an uncounted first round.

    On a GPU, only wall time is measured.
    """
    if device.type == "cpu":
        clocks = CLOCKS
    else:
        clocks = {"wall": CLOCKS["wall"]}
    times_by_run: dict[str, list[list[float]]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            starts = [clock() for clock in clocks.values()]
            run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                times_by_run[name].append(
                    [clock() - start for clock, start in zip(clocks.values(), starts, strict=True)]
                )
    return {
        name: dict(zip(clocks, map(statistics.median, zip(*times, strict=True)), strict=True))
        for name, times in times_by_run.items()
    }


def main() -> None:
    parser = bench_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kind", choices=("t5", "gpt"), default="", help="default: both")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    import transformers

    setting: dict[str, Any] = measurement_facts("facts", device)
    setting["versions"] += f", transformers {transformers.__version__}"
    with hardware.exactly(device), silence_transformers():
        publish(
            "Fine-tuning language models", setting, list(rows(arguments.tiny, arguments.kind, device)), arguments.out
        )


if __name__ == "__main__":
    main()
