"""`elasticd why`: the changes of a job, the cost of each, and the time account of all its slots.

The output goes to a terminal, or is written as JSON, as one HTML page, or as a trace.
"""

__all__: list[str] = []
