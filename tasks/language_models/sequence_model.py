"""Sequence models: prompts, target losses and decoding, with a common interface for both kinds of models.

An encoder-decoder model reads the question and its context, and decodes the answer. A decoder-only model reads both,
followed by `answer:`, and continues with the answer; its loss covers only the answer.

Prompts and answers are lists of token ids, which are padded here into minibatches.
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

BETWEEN = ", "  # between the spans of an answer


def question_text(question: str, context: str) -> str:
    """Format a question about a context in T5's style. Raffel et al. 2020, appendix D.15."""
    return f"question: {question} context: {context}"


def answer_text(answer: Answer) -> str:
    """Join the spans of an answer."""
    return BETWEEN.join(answer)


def parse_answer(text: str, scorer: Scorer) -> Answer:
    """Split a model's text into the spans of an answer. Empty if the text is empty."""
    parts = text.split(BETWEEN) if scorer == "drop" else [text]
    return tuple(part.strip() for part in parts if part.strip())


Tokens = list[int]
IGNORED = -100  # label of tokens outside the answer
# Added to the attention scores of masked tokens. transformers inspects a mask of 0 and 1, which vmap does not permit,
# but uses an additive mask unchanged.
HIDDEN = -1e9
CUE = " answer:"  # end of a decoder-only model's prompt


class SequenceModel(ABC):
    """A model and its tokenizer. `end` is the token that ends an answer."""

    def __init__(self, module: Any, tokenizer: Any) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.end = first_present(tokenizer.eos_token_id, getattr(module.config, "eos_token_id", None))
        padding = first_present(tokenizer.pad_token_id, getattr(module.config, "pad_token_id", None))
        self.padding = 0 if padding is None else padding
        if self.end is None:
            raise ValueError(f"model: the tokenizer of this {self.kind} has no end token. Set its eos_token.")

    @property
    def kind(self) -> str:
        return str(self.module.config.model_type)

    @property
    def device(self) -> torch.device:
        device: torch.device = next(iter(self.module.parameters())).device
        return device

    @abstractmethod
    def prompts(self, questions: Sequence[tuple[str, str]], length: int) -> list[Tokens]:
        """Tokenise pairs (question, context), truncated to `length` tokens."""

    @abstractmethod
    def targets(self, answers: Sequence[str], length: int) -> list[Tokens]:
        """Tokenise answers with the end token, truncated to `length` tokens."""

    @property
    def begin(self) -> int:
        """The token before a whole text: the begin token or, without one, the end token."""
        begin = first_present(self.tokenizer.bos_token_id, self.end)
        assert begin is not None
        return int(begin)

    def encode_texts(self, texts: Sequence[str], length: int) -> list[Tokens]:
        """Tokenise whole texts with the end token, truncated to `length` tokens."""
        tokens = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [append_end(list(ids), self.end, length) for ids in tokens]

    @abstractmethod
    def token_losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        """Return the negative log probability of each token in nats, (answers, longest), with 0 after the end."""

    def losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        """Return the negative log probability of each answer in nats, (answers,), summed over its tokens."""
        return self.token_losses(prompts, targets).sum(1)

    @abstractmethod
    def loss_inputs(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> tuple[Tensor, ...]:
        """Return the inputs of `loss_of` for all questions, (questions, ...)."""

    @abstractmethod
    def loss_of(self, weights: Mapping[str, Tensor], question: tuple[Tensor, ...]) -> Tensor:
        """Return the mean loss of a question with these weights, in nats per token, for use with vmap."""

    @abstractmethod
    def greedy_decode(self, prompts: Sequence[Tokens], max_tokens: int) -> Tensor:
        """Decode the likeliest token at each step, (prompts, at most `max_tokens`).

        Values after `end` are arbitrary.
        """

    def decode_texts(self, answers: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each answer, up to its end token."""
        ended = [list(answer) for answer in answers]
        ended = [answer[: answer.index(self.end)] if self.end in answer else answer for answer in ended]
        decode = self.tokenizer.batch_decode
        texts = []
        for text in decode(ended, skip_special_tokens=True, clean_up_tokenization_spaces=False):
            texts.append(str(text))
        return texts

    def pad_rows(self, rows: Sequence[Tokens], fill_value: int, is_left: bool = False) -> Tensor:
        """Pad rows on the right or left, (rows, longest) int64."""
        longest = max(map(len, rows))
        padding = [[fill_value] * (longest - len(row)) for row in rows]
        padded = []
        for row, pad in zip(rows, padding, strict=True):
            padded.append(pad + row if is_left else row + pad)
        return torch.tensor(padded, device=self.device)

    def mask(self, rows: Sequence[Tokens], is_left: bool = False) -> Tensor:
        """Return 1 for tokens and 0 for padding, (rows, longest) int64."""
        return self.pad_rows([[1] * len(row) for row in rows], 0, is_left)


@final
class EncoderDecoder(SequenceModel):
    """An encoder-decoder model, such as T5 or BART."""

    def __init__(self, module: Any, tokenizer: Any) -> None:
        super().__init__(module, tokenizer)
        settings = (module.config, module.generation_config)
        names = ("decoder_start_token_id", "bos_token_id")
        self.start = first_present(*(getattr(setting, name, None) for name in names for setting in settings))
        if self.start is None:
            raise ValueError(f"model: the config of this {self.kind} has no start token. Set its bos_token_id.")

    def prompts(self, questions: Sequence[tuple[str, str]], length: int) -> list[Tokens]:
        texts = [question_text(question, context) for question, context in questions]
        result = []
        for ids in self.tokenizer(texts, truncation=True, max_length=length)["input_ids"]:
            result.append(list(ids))
        return result

    def targets(self, answers: Sequence[str], length: int) -> list[Tokens]:
        tokens = self.tokenizer(text_target=list(answers), truncation=True, max_length=length)["input_ids"]
        return [append_end(list(ids), self.end, length) for ids in tokens]

    def token_losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        labels = self.pad_rows(targets, IGNORED)
        before = self.pad_rows([[self.start, *target[:-1]] for target in targets], self.padding)
        inputs = self.pad_rows(prompts, self.padding)
        mask = self.mask(prompts)
        logits = self.module(input_ids=inputs, attention_mask=mask, decoder_input_ids=before, use_cache=False).logits
        return _label_losses(logits, labels)

    def loss_inputs(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> tuple[Tensor, ...]:
        before = self.pad_rows([[self.start, *target[:-1]] for target in targets], self.padding)
        return self.pad_rows(prompts, self.padding), self.mask(prompts), before, self.pad_rows(targets, IGNORED)

    def loss_of(self, weights: Mapping[str, Tensor], question: tuple[Tensor, ...]) -> Tensor:
        inputs, mask, before, labels = question
        added = torch.zeros(mask.shape, device=mask.device).masked_fill(mask == 0, HIDDEN)[None, None, None]
        arguments = {"input_ids": inputs[None], "attention_mask": added, "decoder_input_ids": before[None]}
        logits = functional_call(self.module, dict(weights), (), {**arguments, "use_cache": False}).logits
        return mean_loss(logits[0], labels)

    def greedy_decode(self, prompts: Sequence[Tokens], max_tokens: int) -> Tensor:
        inputs = self.pad_rows(prompts, self.padding)
        mask = self.mask(prompts)
        encoded: dict[str, Any] = {"input_ids": inputs}
        answers = DecodedAnswers(len(prompts), max_tokens, self.end, self.device)
        tokens = torch.full((len(prompts), 1), self.start, device=self.device)
        cache = None
        while True:
            out = self.module(
                **encoded,
                attention_mask=mask,
                decoder_input_ids=tokens,
                past_key_values=cache,
                use_cache=True,
            )
            if answers.add(out.logits[:, -1]):
                return answers.tokens
            tokens = answers.last
            cache = out.past_key_values
            encoded = {"encoder_outputs": (out.encoder_last_hidden_state,)}


@final
class DecoderOnly(SequenceModel):
    """A decoder-only model, such as GPT-2 or Llama."""

    def __init__(self, module: Any, tokenizer: Any) -> None:
        super().__init__(module, tokenizer)
        takes = inspect.signature(module.forward).parameters
        self.takes_positions = "position_ids" in takes
        self.takes_kept = "logits_to_keep" in takes
        self.cue: Tokens = list(tokenizer(CUE, add_special_tokens=False)["input_ids"])

    def prompts(self, questions: Sequence[tuple[str, str]], length: int) -> list[Tokens]:
        room = length - len(self.cue)
        if room < 1:
            raise ValueError(
                f"length: expected more than the {len(self.cue)} tokens of {CUE.strip()!r} in the prompt, got "
                f"{length}. Raise length."
            )
        texts = [question_text(question, context) for question, context in questions]
        tokens = [list(ids) for ids in self.tokenizer(texts)["input_ids"]]
        open_ended = [ids[:-1] if ids[-1:] == [self.end] else ids for ids in tokens]
        return [ids[:room] + self.cue for ids in open_ended]

    def targets(self, answers: Sequence[str], length: int) -> list[Tokens]:
        tokens = self.tokenizer([f" {answer}" for answer in answers], add_special_tokens=False)["input_ids"]
        return [append_end(list(ids), self.end, length) for ids in tokens]

    def token_losses(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        labels = self.pad_rows(targets, IGNORED)
        answers = labels.where(labels != IGNORED, self.padding)
        is_answer = (labels != IGNORED).long()
        # All prompts end in the same column, and all answers begin in the next one.
        inputs = torch.cat([self.pad_rows(prompts, self.padding, is_left=True), answers], 1)
        mask = torch.cat([self.mask(prompts, is_left=True), is_answer], 1)
        logits = self._forward(inputs, mask, None, labels.shape[1] + 1).logits
        return _label_losses(logits[:, -labels.shape[1] - 1 : -1], labels)

    def continuation_losses(self, prompt: Tokens, targets: Sequence[Tokens]) -> Tensor:
        """Return `token_losses` of targets that all continue the same prompt, which is computed only once."""
        inputs = torch.tensor([prompt], device=self.device)
        labels = self.pad_rows(targets, IGNORED)
        out = self._forward(inputs, torch.ones_like(inputs), None, 1)
        first = out.logits[:, -1:].expand(len(targets), -1, -1)
        if labels.shape[1] == 1:
            return _label_losses(first, labels)
        cache = out.past_key_values
        cache.batch_repeat_interleave(len(targets))
        tokens = labels.where(labels != IGNORED, self.padding)[:, :-1]
        mask = torch.cat([torch.ones_like(inputs).expand(len(targets), -1), (labels != IGNORED).long()[:, :-1]], 1)
        logits = self._forward(tokens, mask, cache, tokens.shape[1]).logits
        return _label_losses(torch.cat([first, logits], 1), labels)

    def loss_inputs(self, prompts: Sequence[Tokens], targets: Sequence[Tokens]) -> tuple[Tensor, ...]:
        sequences = [prompt + target for prompt, target in zip(prompts, targets, strict=True)]
        labels = []
        for prompt, target in zip(prompts, targets, strict=True):
            labels.append([IGNORED] * len(prompt) + target)
        return self.pad_rows(sequences, self.padding), self.pad_rows(labels, IGNORED)

    def loss_of(self, weights: Mapping[str, Tensor], question: tuple[Tensor, ...]) -> Tensor:
        inputs, labels = question  # padding comes last, so no token attends to it
        length = inputs.shape[0]
        ahead = torch.full((length, length), HIDDEN, device=inputs.device).triu(1)[None, None]
        places = torch.arange(length, device=inputs.device)[None]
        arguments = {"input_ids": inputs[None], "attention_mask": ahead, "use_cache": False}
        if self.takes_positions:
            arguments["position_ids"] = places
        logits = functional_call(self.module, dict(weights), (), arguments).logits
        return mean_loss(logits[0, :-1], labels[1:])

    def greedy_decode(self, prompts: Sequence[Tokens], max_tokens: int) -> Tensor:
        tokens = self.pad_rows(prompts, self.padding, is_left=True)
        mask = self.mask(prompts, is_left=True)
        answers = DecodedAnswers(len(prompts), max_tokens, self.end, self.device)
        cache = None
        while True:
            out = self._forward(tokens, mask, cache, 1)
            if answers.add(out.logits[:, -1]):
                return answers.tokens
            tokens = answers.last
            cache = out.past_key_values
            mask = F.pad(mask, (0, 1), value=1)

    def _forward(self, tokens: Tensor, mask: Tensor, cache: Any, kept_logits: int) -> Any:
        """Run the model on the newest tokens. `mask` covers all tokens so far."""
        more: dict[str, Any] = {}
        if self.takes_positions:
            more["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        if self.takes_kept:
            more["logits_to_keep"] = kept_logits
        cached = not self.module.training
        return self.module(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=cached, **more)


@dataclass
class DecodedAnswers:
    """Answers that grow by one token per step until all have ended."""

    count: int
    limit: int
    end: int
    device: torch.device

    def __post_init__(self) -> None:
        self._tokens: list[Tensor] = []
        self._ended = torch.zeros(self.count, dtype=torch.bool, device=self.device)

    def add(self, logits: Tensor) -> bool:
        """Add the likeliest tokens given their logits (answers, tokens). Returns whether all answers are complete."""
        likeliest = logits.argmax(-1)
        self._tokens.append(likeliest)
        self._ended |= likeliest == self.end
        return len(self._tokens) == self.limit or bool(self._ended.all())

    @property
    def last(self) -> Tensor:
        """The newest tokens, (answers, 1)."""
        return self._tokens[-1][:, None]

    @property
    def tokens(self) -> Tensor:
        """All tokens, (answers, tokens)."""
        return torch.stack(self._tokens, 1)


def _label_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the negative log probabilities of the labels, (rows, tokens), with 0 for ignored labels."""
    losses = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view(labels.shape)


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean negative log probability of the labels (tokens,) of one answer."""
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum()


def append_end(tokens: Tokens, end: int, length: int) -> Tokens:
    """Append the end token, truncating to `length` tokens including it."""
    inner = tokens[:-1] if tokens[-1:] == [end] else tokens
    return [*inner[: length - 1], end]


def first_present(*values: Any) -> Any:
    """Return the first value that is not None, or its first element if it is a list.

    Returns None if there is no such value.
    """
    for value in values:
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        if value is not None:
            return value
    return None
