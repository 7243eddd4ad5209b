"""What processes of one node say to each other: the shapes and their text form, nothing that acts.

`pool`: agent and warm pool. `worker`: agent and a worker that called `elasticd.run`. `wire`: the
line that carries either.
"""

__all__: list[str] = []
