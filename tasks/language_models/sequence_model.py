"""Sequence models: what they read, their losses of answers, and their answers, alike for both kinds.

An encoder-decoder reads the question with its context and gives the answer. A decoder-only model reads both and
`answer:`, and goes on with the answer; its loss is of the answer alone.

Prompts and answers are lists of token ids; minibatches are padded here.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from tasks.datasets.questions.question import Answer, Scorer

BETWEEN = ", "  # spans of an answer


def question_text(question: str, context: str) -> str:
    """A question about a context, as T5 is asked it. Raffel et al. 2020, appendix D.15."""
    return f"question: {question} context: {context}"


def answer_text(answer: Answer) -> str:
    """An answer as a model gives it: its spans one after another."""
    return BETWEEN.join(answer)


def parse_answer(text: str, scorer: Scorer) -> Answer:
    """What a model said as an answer: its spans, where answers may have several; empty where it said nothing."""
    parts = text.split(BETWEEN) if scorer == "drop" else [text]
    return tuple(part.strip() for part in parts if part.strip())


Tokens = list[int]
IGNORED = -100  # the label of what is no part of an answer
# Added to the scores of what is not to be seen. Transformers looks into a mask of 0 and 1, which vmap cannot; one of
# numbers to add it takes as it is.
HIDDEN = -1e9
CUE = " answer:"  # what a decoder-only model goes on from


class SequenceModel(ABC):
    """A model with its tokenizer. Token ids are the tokenizer's; `end` ends an answer."""

    def __init__(self, module: Any, tokenizer: Any) -> None:
        self.module, self.tokenizer = module, tokenizer
        self.end = first_present(tokenizer.eos_token_id, getattr(module.config, "eos_token_id", None))
        padding = first_present(tokenizer.pad_token_id, getattr(module.config, "pad_token_id", None))
        self.padding = 0 if padding is None else padding
        if self.end is None:
            raise ValueError(f"the tokenizer of a {self.kind} has no token that ends an answer; set its eos_token")

    @property
    def kind(self) -> str:
        return str(self.module.config.model_type)

    @property
    def device(self) -> torch.device:
        place: torch.device = next(iter(self.module.parameters())).device
        return place

    @abstractmethod
    def prompts(self, asked: Sequence[tuple[str, str]], length: int) -> list[Tokens]:
        """The tokens of (question, context), at most `length` of them: the end of a longer context is cut off."""

    @abstractmethod
    def targets(self, answers: Sequence[str], length: int) -> list[Tokens]:
        """The tokens of answers with the one that ends them, at most `length` of them."""

    @property
    def begin(self) -> int:
        """What a model reads before a whole text: the token that begins one, or the one that ends one."""
        begin = first_present(self.tokenizer.bos_token_id, self.end)
        assert begin is not None
        return int(begin)

    def encode_texts(self, texts: Sequence[str], length: int) -> list[Tokens]:
        """The tokens of whole texts with the one that ends them, at most `length` of them."""
        tokens = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [append_end(list(ids), self.end, length) for ids in tokens]

    @abstractmethod
    def token_losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        """The negative log probability of each token of the answers in nats, (answers, longest), 0 after their ends."""

    def losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        """Each answer's negative log probability in nats, (answers,), the sum over its tokens."""
        return self.token_losses(prompts, targets).sum(1)

    @abstractmethod
    def loss_inputs(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> tuple[Tensor, ...]:
        """What `loss_of` takes of each question, (questions, ...)."""

    @abstractmethod
    def loss_of(self, weights: Mapping[str, Tensor], question: tuple[Tensor, ...]) -> Tensor:
        """The mean loss in nats per token of one question of `padded`, with these weights; vmap can compute it."""

    @abstractmethod
    def greedy_decode(self, prompts: Sequence[Tokens], most: int) -> Tensor:
        """The tokens of the likeliest next one each time, (prompts, at most `most`), of any value after `end`."""

    def decode_texts(self, answers: Sequence[Sequence[int]]) -> list[str]:
        """The text of each answer up to where it ends."""
        ended = [list(answer) for answer in answers]
        ended = [answer[: answer.index(self.end)] if self.end in answer else answer for answer in ended]
        decode = self.tokenizer.batch_decode
        return [str(text) for text in decode(ended, skip_special_tokens=True, clean_up_tokenization_spaces=False)]

    def pad_rows(self, rows: Sequence[Tokens], filled: int, left: bool = False) -> Tensor:
        """The rows with padding after them, or before, (rows, longest) int64."""
        longest = max(map(len, rows))
        padding = [[filled] * (longest - len(row)) for row in rows]
        both = [pad + row if left else row + pad for row, pad in zip(rows, padding, strict=True)]
        return torch.tensor(both, device=self.device)

    def mask(self, rows: Sequence[Tokens], left: bool = False) -> Tensor:
        """1 for each token of the rows and 0 for padding, (rows, longest) int64."""
        return self.pad_rows([[1] * len(row) for row in rows], 0, left)


@final
class EncoderDecoder(SequenceModel):
    """A model like T5 or BART."""

    def __init__(self, module: Any, tokenizer: Any) -> None:
        super().__init__(module, tokenizer)
        settings = (module.config, module.generation_config)
        names = ("decoder_start_token_id", "bos_token_id")
        self.start = first_present(*(getattr(each, name, None) for name in names for each in settings))
        if self.start is None:
            raise ValueError(f"the config of a {self.kind} says no token that answers begin with; set its bos_token_id")

    def prompts(self, asked: Sequence[tuple[str, str]], length: int) -> list[Tokens]:
        texts = [question_text(question, context) for question, context in asked]
        return [list(ids) for ids in self.tokenizer(texts, truncation=True, max_length=length)["input_ids"]]

    def targets(self, answers: Sequence[str], length: int) -> list[Tokens]:
        tokens = self.tokenizer(text_target=list(answers), truncation=True, max_length=length)["input_ids"]
        return [append_end(list(ids), self.end, length) for ids in tokens]

    def token_losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        labels = self.pad_rows(targets, IGNORED)
        before = self.pad_rows([[self.start, *target[:-1]] for target in targets], self.padding)
        read, mask = self.pad_rows(prompts, self.padding), self.mask(prompts)
        logits = self.module(input_ids=read, attention_mask=mask, decoder_input_ids=before, use_cache=False).logits
        return _label_losses(logits, labels)

    def loss_inputs(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> tuple[Tensor, ...]:
        before = self.pad_rows([[self.start, *target[:-1]] for target in targets], self.padding)
        return self.pad_rows(prompts, self.padding), self.mask(prompts), before, self.pad_rows(targets, IGNORED)

    def loss_of(self, weights: Mapping[str, Tensor], question: tuple[Tensor, ...]) -> Tensor:
        read, mask, before, labels = question
        added = torch.zeros(mask.shape, device=mask.device).masked_fill(mask == 0, HIDDEN)[None, None, None]
        given = {"input_ids": read[None], "attention_mask": added, "decoder_input_ids": before[None]}
        logits = functional_call(self.module, dict(weights), (), {**given, "use_cache": False}).logits
        return mean_loss(logits[0], labels)

    def greedy_decode(self, prompts: Sequence[Tokens], most: int) -> Tensor:
        read, mask = self.pad_rows(prompts, self.padding), self.mask(prompts)
        encoded = self.module.get_encoder()(input_ids=read, attention_mask=mask)
        answers = DecodedAnswers(len(prompts), most, self.end, self.device)
        tokens, cache = torch.full((len(prompts), 1), self.start, device=self.device), None
        while True:
            out = self.module(
                encoder_outputs=encoded,
                attention_mask=mask,
                decoder_input_ids=tokens,
                past_key_values=cache,
                use_cache=True,
            )
            if answers.add(out.logits[:, -1]):
                return answers.tokens
            tokens, cache = answers.last, out.past_key_values


@final
class DecoderOnly(SequenceModel):
    """A model like GPT-2 or Llama."""

    def __init__(self, module: Any, tokenizer: Any) -> None:
        super().__init__(module, tokenizer)
        takes = inspect.signature(module.forward).parameters
        self.takes_positions, self.takes_kept = "position_ids" in takes, "logits_to_keep" in takes
        self.cue: Tokens = list(tokenizer(CUE, add_special_tokens=False)["input_ids"])

    def prompts(self, asked: Sequence[tuple[str, str]], length: int) -> list[Tokens]:
        room = length - len(self.cue)
        if room < 1:
            raise ValueError(f"length is {length}; the prompt's {CUE.strip()!r} alone has {len(self.cue)} tokens")
        texts = [question_text(question, context) for question, context in asked]
        tokens = [list(ids) for ids in self.tokenizer(texts)["input_ids"]]
        open_ended = [ids[:-1] if ids[-1:] == [self.end] else ids for ids in tokens]
        return [ids[:room] + self.cue for ids in open_ended]

    def targets(self, answers: Sequence[str], length: int) -> list[Tokens]:
        tokens = self.tokenizer([f" {answer}" for answer in answers], add_special_tokens=False)["input_ids"]
        return [append_end(list(ids), self.end, length) for ids in tokens]

    def token_losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        labels = self.pad_rows(targets, IGNORED)
        answers, kept = labels.where(labels != IGNORED, self.padding), (labels != IGNORED).long()
        # The prompts end in one column and the answers begin in the next.
        read = torch.cat([self.pad_rows(prompts, self.padding, left=True), answers], 1)
        mask = torch.cat([self.mask(prompts, left=True), kept], 1)
        logits = self._forward(read, mask, None, labels.shape[1] + 1).logits
        return _label_losses(logits[:, -labels.shape[1] - 1 : -1], labels)

    def continuation_losses(self, prompt: Tokens, targets: Sequence[Tokens]) -> Tensor:
        """`token_losses` of targets that all go on from one prompt, which is computed once."""
        read, labels = torch.tensor([prompt], device=self.device), self.pad_rows(targets, IGNORED)
        out = self._forward(read, torch.ones_like(read), None, 1)
        first = out.logits[:, -1:].expand(len(targets), -1, -1)
        if labels.shape[1] == 1:
            return _label_losses(first, labels)
        cache = out.past_key_values
        cache.batch_repeat_interleave(len(targets))
        tokens = labels.where(labels != IGNORED, self.padding)[:, :-1]
        mask = torch.cat([torch.ones_like(read).expand(len(targets), -1), (labels != IGNORED).long()[:, :-1]], 1)
        logits = self._forward(tokens, mask, cache, tokens.shape[1]).logits
        return _label_losses(torch.cat([first, logits], 1), labels)

    def loss_inputs(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> tuple[Tensor, ...]:
        whole = [prompt + target for prompt, target in zip(prompts, targets, strict=True)]
        labels = [[IGNORED] * len(prompt) + target for prompt, target in zip(prompts, targets, strict=True)]
        return self.pad_rows(whole, self.padding), self.pad_rows(labels, IGNORED)

    def loss_of(self, weights: Mapping[str, Tensor], question: tuple[Tensor, ...]) -> Tensor:
        read, labels = question  # padding comes last, where nothing before it sees it
        length = read.shape[0]
        ahead = torch.full((length, length), HIDDEN, device=read.device).triu(1)[None, None]
        places = torch.arange(length, device=read.device)[None]
        given = {"input_ids": read[None], "attention_mask": ahead, "use_cache": False}
        if self.takes_positions:
            given["position_ids"] = places
        logits = functional_call(self.module, dict(weights), (), given).logits
        return mean_loss(logits[0, :-1], labels[1:])

    def greedy_decode(self, prompts: Sequence[Tokens], most: int) -> Tensor:
        tokens, mask = self.pad_rows(prompts, self.padding, left=True), self.mask(prompts, left=True)
        answers, cache = DecodedAnswers(len(prompts), most, self.end, self.device), None
        while True:
            out = self._forward(tokens, mask, cache, 1)
            if answers.add(out.logits[:, -1]):
                return answers.tokens
            tokens, cache = answers.last, out.past_key_values
            mask = F.pad(mask, (0, 1), value=1)

    def _forward(self, tokens: Tensor, mask: Tensor, cache: Any, kept: int) -> Any:
        """The model's output for the newest tokens; `mask` covers all tokens so far."""
        more: dict[str, Any] = {}
        if self.takes_positions:
            more["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        if self.takes_kept:
            more["logits_to_keep"] = kept
        cached = not self.module.training
        return self.module(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=cached, **more)


@dataclass
class DecodedAnswers:
    """Answers that grow by one token at a time, until all have ended."""

    count: int
    most: int
    end: int
    place: torch.device

    def __post_init__(self) -> None:
        self._tokens: list[Tensor] = []
        self._ended = torch.zeros(self.count, dtype=torch.bool, device=self.place)

    def add(self, logits: Tensor) -> bool:
        """Add the likeliest tokens by their logits, (answers, tokens); whether all answers are complete."""
        likeliest = logits.argmax(-1)
        self._tokens.append(likeliest)
        self._ended |= likeliest == self.end
        return len(self._tokens) == self.most or bool(self._ended.all())

    @property
    def last(self) -> Tensor:
        """The newest tokens, (answers, 1)."""
        return self._tokens[-1][:, None]

    @property
    def tokens(self) -> Tensor:
        """All tokens, (answers, tokens)."""
        return torch.stack(self._tokens, 1)


def _label_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The negative log probabilities of the labels, (rows, tokens), 0 where a label is ignored."""
    losses = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view(labels.shape)


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean negative log probability of one answer's labels, (tokens,)."""
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum()


def append_end(tokens: Tokens, end: int, length: int) -> Tokens:
    """The tokens with `end` after them, at most `length` of them with it."""
    inner = tokens[:-1] if tokens[-1:] == [end] else tokens
    return [*inner[: length - 1], end]


def first_present(*values: Any) -> Any:
    """The first value that is there; of several, a config's list, its first. None where none is."""
    for value in values:
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        if value is not None:
            return value
    return None
