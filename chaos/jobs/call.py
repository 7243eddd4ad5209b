"""How the chaos jobs are called."""

import argparse
from pathlib import Path

__all__ = ["parse_args"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A training run that writes down every step.")
    parser.add_argument("folder", type=Path, help="records, orders and the end")
    parser.add_argument("--step-sleep", type=float, default=0.0, metavar="S")
    parser.add_argument("--samples", type=int, default=242)
    parser.add_argument("--batch-size", type=int, default=24, help="of all ranks together")
    parser.add_argument("--poison-at-step", type=int, default=0, help="every rank raises there")
    parser.add_argument("--steps", type=int, default=0, help="ends after so many")
    parser.add_argument("--in-pod", action="store_true", help="pids repeat: tell the pod too")
    return parser.parse_args()
