"""`elasticd why`: what changed in a job, what it cost, and where all the time of its slots went.

It is printed in a terminal, or written as JSON, as one page to mail around, or as a trace.
"""

__all__: list[str] = []
