"""A network in plain PyTorch on 1,797 digits. An interrupted job continues after its last epoch.

cd examples/training
engram run membership records=1797 models=16 training.command='python plain_pytorch.py'
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from engram.training import TrainingJob

EPOCHS = 20
digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)

job = TrainingJob.from_environment(default_rows=len(y))
torch.manual_seed(job.seed)
rows = torch.tensor(job.rows)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

first_epoch = 0
checkpoint = job.state / "checkpoint.pt"  # job.state is empty at the first attempt
if checkpoint.exists():
    first_epoch, weights, moments, randomness = torch.load(checkpoint)
    model.load_state_dict(weights)
    optimiser.load_state_dict(moments)
    torch.set_rng_state(randomness)

for epoch in range(first_epoch, EPOCHS):
    for batch in rows[torch.randperm(len(rows))].split(32):
        loss = functional.cross_entropy(model(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    job.log(step=epoch, loss=loss.item())
    state = (epoch + 1, model.state_dict(), optimiser.state_dict(), torch.get_rng_state())
    torch.save(state, job.state / "unfinished.pt")
    (job.state / "unfinished.pt").replace(checkpoint)

with torch.no_grad():
    losses = functional.cross_entropy(model(x), y, reduction="none")
job.save_scores(losses[job.ask])
