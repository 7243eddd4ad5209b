"""`elasticd why`: what changed in a job, what it cost, and where all the time of its slots went.

Said in a terminal, as JSON, as one page to mail around, and as a trace.
"""

__all__: list[str] = []
