"""These tests need a card: `make gpu` runs them, and `make test` leaves them out."""

import torch

if not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]
