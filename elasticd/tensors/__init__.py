"""Tensors as text, boxes and bytes: what saving, restoring and healing all need of them."""
