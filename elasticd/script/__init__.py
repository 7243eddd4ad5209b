"""The functions by which a script of restart mode reports, without an import of torch.

Such a script calls only one or two functions of elasticd, and must also run without it.
"""

__all__: list[str] = []
