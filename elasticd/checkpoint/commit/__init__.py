"""Writes a checkpoint and makes it count; reads one back."""
