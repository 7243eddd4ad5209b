"""Which checkpoints stay, and the deletion of all else."""
