"""What a script of restart mode reports of itself, in a process that may never import torch.

Such a script knows nothing of elasticd but a call or two, and must also run without it.
"""

__all__: list[str] = []
