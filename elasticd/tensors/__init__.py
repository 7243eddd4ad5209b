"""Tensors as text, boxes and bytes: what saving, restoring and state transfer all need of them.

Here and in `elasticd.checkpoint` offsets and shapes of boxes count elements; all else counts bytes.
"""
