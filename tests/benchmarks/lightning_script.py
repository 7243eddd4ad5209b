"""A Lightning script of any user's: it checkpoints by itself, and goes on from its last checkpoint.

The one line that a benchmark needs is a callback that writes when each step ended.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Stamp(Callback):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self.file = Path(path).open("a")  # noqa: SIM115 - as long as the process

    def on_train_batch_end(self, trainer: Any, *_: object) -> None:
        self.file.write(f"{os.getpid()} {trainer.world_size} {time.monotonic()}\n")
        self.file.flush()
        time.sleep(0.02)


def main() -> None:
    folder = Path(sys.argv[1])
    saved = folder / "last.ckpt"
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_epochs=-1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            Stamp(sys.argv[2]),
            ModelCheckpoint(dirpath=folder, save_last=True, save_top_k=0, every_n_train_steps=20),
        ],
    )
    data = TensorDataset(torch.randn(4096, 32), torch.randint(0, 2, (4096,)))
    trainer.fit(
        Model(), DataLoader(data, batch_size=32), ckpt_path=str(saved) if saved.exists() else None
    )


main()
