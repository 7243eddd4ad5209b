"""What processes of one node say to each other: the shapes and their text form, nothing that acts.

`pool`: agent and warm pool. `fork_server`: agent and the process from which pools are forked.
`worker`: agent and a worker that called `elasticd.run`. `wire`: the line that carries any of them.
"""

__all__: list[str] = []
