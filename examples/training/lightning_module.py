"""A Lightning module on 1,797 digits, with Engram's callback for checkpoints and metrics.

cd examples/training
engram run membership records=1797 models=16 training.command='python lightning_module.py'
"""

import pytorch_lightning as lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, TensorDataset

from engram.training import TrainingJob, lightning_callback


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, _):
        loss = self.predict_step(batch, _).mean()
        self.log("loss", loss)
        return loss

    def predict_step(self, batch, _):
        x, y = batch
        return functional.cross_entropy(self.network(x), y, reduction="none")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


digits = load_digits()
data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))

job = TrainingJob.from_environment(default_rows=len(data))
lightning.seed_everything(job.seed)
callback = lightning_callback(job)
trainer = lightning.Trainer(
    max_epochs=10, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False
)
module = Classifier()
trainer.fit(module, DataLoader(Subset(data, job.rows), 32, shuffle=True), ckpt_path=callback.resume_path)
losses = trainer.predict(module, DataLoader(Subset(data, job.ask), 256))
job.save_scores(torch.cat(losses))
