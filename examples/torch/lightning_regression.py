"""Training with Lightning over Weft, on CPU tensors.

    torchrun --nproc-per-node 2 examples/torch/lightning_regression.py

The strategy names the backend: process_group_backend="weft". The FSDP and ModelParallel strategies take it, too.
"""
import logging
import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            print(f"step {self.trainer.global_step}: loss {self.trainer.callback_metrics['loss'].item():.4f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    lightning.seed_everything(0, verbose=False)
    inputs = torch.randn(512, 16)
    samples = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True) / 4)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="weft"), max_epochs=4, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Regression(), torch.utils.data.DataLoader(samples, batch_size=32, shuffle=True))


if __name__ == "__main__":
    main()
