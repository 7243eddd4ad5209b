"""Which checkpoints stay, and the deletion of all else.

keeper/cleanup.py calls it.
"""
