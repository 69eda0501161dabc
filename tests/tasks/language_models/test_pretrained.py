"""The tokenizer of tiny models: the commonest words and numbers, and anything else by its characters."""

from __future__ import annotations

import subprocess
import sys

from tasks.language_models.pretrained import VOCABULARY, train_tokenizer, vocabulary_of

TEXTS = ["How many hens has Ada?", "Ada has 1,200 hens and 23.5% of the land.", "Zoë's café"]


def test_texts_and_others_of_their_characters_come_back_as_they_were() -> None:
    tokenizer = train_tokenizer(TEXTS)
    for text in (*TEXTS, "Adam's 42 sheep, 7.5%", "a (b) c"):
        assert text == tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)


def test_words_and_numbers_of_the_texts_are_one_token_each() -> None:
    tokenizer = train_tokenizer(TEXTS)
    pieces = ["▁Ada", "▁has", "▁1", ",", "200", "▁hens", "</s>"]
    assert pieces == tokenizer.convert_ids_to_tokens(tokenizer("Ada has 1,200 hens")["input_ids"])


def test_the_number_of_words_is_bounded() -> None:
    words = [f"word{chr(97 + a)}{chr(97 + b)}{chr(97 + c)}" for a in range(20) for b in range(20) for c in range(20)]
    assert VOCABULARY < len(vocabulary_of([" ".join(words)])) < VOCABULARY + 250


def test_the_same_texts_give_the_same_tokens_in_another_process() -> None:
    script = f"from tasks.language_models.pretrained import vocabulary_of; print(vocabulary_of({TEXTS!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"{vocabulary_of(TEXTS)}\n" == done.stdout, done.stderr
