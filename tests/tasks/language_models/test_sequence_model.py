"""Sequence models against transformers' own losses and answers; questions and answers as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.datasets.questions.question import Answer, Scorer
from tasks.language_models.language_model import ModelError
from tasks.language_models.pretrained import prepare_model, training_texts
from tasks.language_models.sequence_model import IGNORED, SequenceModel, answer_text, parse_answer, question_text
from tasks.language_models.training import score_candidates, score_texts
from tests.tasks.language_models.models import TINY, config, question_set, saved


def test_question_has_the_format_of_t5() -> None:
    assert question_text("How many?", "Two hens.") == "question: How many? context: Two hens."


@pytest.mark.parametrize(
    ("text", "scorer", "answer"),
    [
        ("Ada, Ben", "drop", ("Ada", "Ben")),
        ("1,200", "drop", ("1,200",)),
        ("Ada, Ben", "squad", ("Ada, Ben",)),
        (" 12 ", "squad", ("12",)),
        ("", "squad", ()),
        (", ", "drop", ()),
    ],
)
def test_text_is_split_into_spans(text: str, scorer: Scorer, answer: Answer) -> None:
    assert answer == parse_answer(text, scorer)


def test_answer_is_parsed_from_its_text() -> None:
    assert parse_answer(answer_text(("Ada", "Ben")), "drop") == ("Ada", "Ben")


KINDS = ("t5", "bart", "gpt2", "llama")
CPU = torch.device("cpu")
QUESTIONS = question_set()


def opened(folder: Path, kind: str, **fields: object) -> SequenceModel:
    model = prepare_model(
        config(model=saved(folder / kind, kind, QUESTIONS), **fields), training_texts(QUESTIONS.train), CPU
    )
    model.module.eval()
    return model


@pytest.fixture(params=KINDS, scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SequenceModel:
    return opened(tmp_path_factory.mktemp("saved"), request.param)


def prompts_and_targets(model: SequenceModel, length: int = 64) -> tuple[list[list[int]], list[list[int]]]:
    prompts = model.prompts([(question.question, question.context) for question in QUESTIONS.train], length)
    return prompts, model.targets([question.golds[0][0] for question in QUESTIONS.train], 5)


def test_loss_covers_only_the_answer(model: SequenceModel) -> None:
    prompts, targets = prompts_and_targets(model)
    assert len({len(prompt) for prompt in prompts}) > 1
    losses = model.losses(prompts, targets).detach()
    for index, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
        if model.module.config.is_encoder_decoder:
            labels = torch.tensor([target])
            start = model.module.config.decoder_start_token_id
            before = torch.tensor([[start, *target[:-1]]])
            out = model.module(input_ids=torch.tensor([prompt]), decoder_input_ids=before, labels=labels)
        else:
            labels = torch.tensor([[IGNORED] * len(prompt) + target])
            out = model.module(input_ids=torch.tensor([prompt + target]), labels=labels)
        assert float(out.loss.detach()) * len(target) == pytest.approx(float(losses[index]), rel=1e-4)


def test_loss_of_question_is_part_of_minibatch_loss(model: SequenceModel) -> None:
    prompts, targets = prompts_and_targets(model)
    weights = dict(model.module.named_parameters())
    rows = zip(*model.loss_inputs(prompts, targets), strict=True)
    alone = torch.stack([model.loss_of(weights, row) for row in rows])
    counts = torch.tensor([len(target) for target in targets])
    torch.testing.assert_close(model.losses(prompts, targets), alone * counts, rtol=1e-4, atol=1e-4)


def test_shared_beginning_gives_equal_scores(model: SequenceModel) -> None:
    candidates = config(model=TINY)
    for texts in (["Ada has 12 hens", "Ada has 345", "Ada"], ["Ada", "Ben has 7 hens"], ["Ada has 12 hens"] * 2):
        full_scores = score_texts(candidates, model, texts)
        shared = score_candidates(candidates, model, texts)
        np.testing.assert_allclose(full_scores, shared, rtol=1e-5)


def test_answers_equal_those_of_generate(model: SequenceModel) -> None:
    prompts, _ = prompts_and_targets(model)
    with torch.inference_mode():
        answers = model.greedy_decode(prompts, 6)
        for prompt, answer in zip(prompts, answers.tolist(), strict=True):
            generated = model.module.generate(
                torch.tensor([prompt]), max_new_tokens=6, do_sample=False, num_beams=1, eos_token_id=model.end
            )[0].tolist()
            if model.module.config.is_encoder_decoder:
                new = generated[1:]
            else:
                new = generated[len(prompt) :]
            until = answer.index(model.end) + 1 if model.end in answer else 6
            assert new == answer[:until]


def test_long_contexts_are_truncated_before_the_end_token(model: SequenceModel) -> None:
    full_prompts, _ = prompts_and_targets(model)
    cut, _ = prompts_and_targets(model, 12)
    tail = model.cue if hasattr(model, "cue") else [model.end]
    for long, short in zip(full_prompts, cut, strict=True):
        assert len(short) == 12
        assert long[: 12 - len(tail)] + tail == short
    assert [[model.end]] == [target[-1:] for target in model.targets(["a dog a dog a dog a dog"], 5)]
    assert len(model.targets(["a dog a dog a dog a dog"], 5)[0]) == 5


def test_answer_decodes_from_its_tokens(model: SequenceModel) -> None:
    answers = ["12", "a dog", "Ada, Ben", "1.5%"]
    tokens = [[*target, model.end, 5, 5] for target in model.targets(answers, 20)]
    assert answers == [text.strip() for text in model.decode_texts(tokens)]


def test_model_with_too_few_positions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"length: expected at most the 128 positions of folder:.*bart, got 256"):
        opened(tmp_path, "bart", length=256)
    with pytest.raises(ValueError, match=r"length \+ answer_length: expected at most the 128 positions of .*, got 133"):
        opened(tmp_path, "gpt2", length=128)


def test_unreadable_folder_is_refused(tmp_path: Path) -> None:
    model = saved(tmp_path / "t5", "t5", QUESTIONS)
    (tmp_path / "t5" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="is not the one that was pinned"):
        prepare_model(config(model=model), training_texts(QUESTIONS.train), CPU)
    with pytest.raises(ModelError, match="transformers cannot read it") as raised:
        prepare_model(config(model=type(model)(model.name).pin({})), training_texts(QUESTIONS.train), CPU)
    assert "\n" not in str(raised.value)


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = saved(tmp_path / "gpt2", "gpt2", QUESTIONS)
    weights = load_file(tmp_path / "gpt2" / "model.safetensors")
    name = next(name for name in sorted(weights) if "attn" in name)
    save_file(
        {tensor_name: weights[tensor_name] for tensor_name in weights if tensor_name != name},
        tmp_path / "gpt2" / "model.safetensors",
    )
    changed = type(model)(model.name).pin({})
    with pytest.raises(ModelError, match=f"expected all weights, 1 are missing, such as .*{name.split('.')[-1]}"):
        prepare_model(config(model=changed), training_texts(QUESTIONS.train), CPU)


def test_loading_keeps_torchs_random_state(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model = prepare_model(config(adaptation="lora"), training_texts(QUESTIONS.train), CPU)
    torch.testing.assert_close(expected, torch.rand(3), rtol=0, atol=0)
    repeated = prepare_model(config(adaptation="lora"), training_texts(QUESTIONS.train), CPU)
    for (name, weight), repeated_weight in zip(
        model.module.named_parameters(), repeated.module.parameters(), strict=True
    ):
        assert torch.equal(weight, repeated_weight), name
    another = prepare_model(config(seed=1), training_texts(QUESTIONS.train), CPU)
    assert not torch.equal(model.module.get_input_embeddings().weight, another.module.get_input_embeddings().weight)
