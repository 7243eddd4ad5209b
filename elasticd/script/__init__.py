"""What a script of restart mode tells of itself, in a process that may never import torch.

Such a script knows nothing of elasticd but a call or two, and must run without it just the same.
"""

__all__: list[str] = []
