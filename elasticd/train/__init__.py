"""In the worker's process: what the script calls, and what keeps its state over changes of world.

It knows nothing of the agent but the messages of `elasticd.channel`.
"""

__all__: list[str] = []
