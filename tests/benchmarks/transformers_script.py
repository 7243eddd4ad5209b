"""A script of transformers' Trainer: it checkpoints by itself, and goes on from there.

The one line that a benchmark needs is a callback that writes when each step ended.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint


class Words(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.arange(index, index + 16) % 100
        return {"input_ids": words, "labels": torch.tensor(index % 2)}


class Stamp(TrainerCallback):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self.file = Path(path).open("a")  # noqa: SIM115 - as long as the process

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.file.write(f"{os.getpid()} {args.world_size} {time.monotonic()}\n")
        self.file.flush()
        time.sleep(0.02)


def main() -> None:
    folder = sys.argv[1]
    config = BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=1_000_000,
        per_device_train_batch_size=4,
        save_steps=20,
        save_total_limit=2,
        logging_steps=1_000_000,
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        report_to=[],
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Words(),
        callbacks=[Stamp(sys.argv[2])],
    )
    saved = get_last_checkpoint(folder) if Path(folder).exists() else None
    trainer.train(resume_from_checkpoint=saved)


main()
