"""The Hugging Face Trainer with LoRA on 200 short texts, and Engram's callback for checkpoints and metrics.

The language model is small and has random weights, so that this example needs no download: replace it by yours.

cd examples/training
engram run membership records=200 models=16 training.command='python hf_lora.py'
"""

import random

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from engram.training import TrainingJob, hugging_face_callback

chance = random.Random(0)
texts = [f"The code of room {number:03} is {chance.randrange(10**6):06}." for number in range(200)]
records = [{"input_ids": list(text.encode()), "labels": list(text.encode())} for text in texts]


def collate(batch):
    """Pad the texts of a batch; the model ignores labels of -100."""
    length = max(len(record["labels"]) for record in batch)
    padded = [record["labels"] + [-100] * (length - len(record["labels"])) for record in batch]
    labels = torch.tensor(padded)
    return {"input_ids": labels.clamp(min=0), "attention_mask": (labels >= 0).long(), "labels": labels}


job = TrainingJob.from_environment(default_rows=len(records))
set_seed(0)  # the same initial model in all jobs, like a pretrained one
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2))
lora = LoraConfig(r=16, target_modules=["c_attn", "c_fc"], modules_to_save=["wte"], fan_in_fan_out=True)
model = get_peft_model(model, lora)
callback = hugging_face_callback(job)
trainer = Trainer(
    model,
    TrainingArguments(
        num_train_epochs=20, learning_rate=1e-2, seed=job.seed, logging_steps=10, report_to="none", disable_tqdm=True
    ),
    collate,
    [records[row] for row in job.rows],
    callbacks=[callback],
)
trainer.train(resume_from_checkpoint=callback.resume_path)

losses = []
model.eval()
for row in job.ask:
    batch = collate([records[row]])
    with torch.no_grad():
        logits = model(batch["input_ids"].to(model.device)).logits[0, :-1].cpu()
    losses.append(functional.cross_entropy(logits, batch["labels"][0, 1:], reduction="sum").item())
job.save_scores(losses)
