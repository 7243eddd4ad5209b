"""In the worker's process: what the script calls, and what keeps its state over changes of world.

Sits on the floor of the agent and knows nothing of it but the messages of `elasticd.channel`.
"""

__all__: list[str] = []
