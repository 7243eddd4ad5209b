"""The fault runner: real processes, real faults on purpose, and a verdict over what was seen.

A scenario names a job, faults and what must hold; a seed turns it into a schedule. The runner
plays the schedule against real agents, a real etcd and real workers, and writes down what it did.
The job's ranks write down what they did. From these two alone, and from nothing that the agent
says of itself, `verdict` computes whether the invariants held. So a bug in the agent cannot hide
itself: the code that judges imports none of the code that is judged.

Above: `__main__` and `run`. Then `runner`, which knows of the machines only the port `site`;
`processes` and `pods` implement it. Pure: `plan` (faults, scenario, schedule), `history` (records,
lineage, recovery) and `verdict`. Apart from all these stands `cluster`, for a cluster of somebody's
own: it sees no ranks' records, and judges by the status that Kubernetes has.
"""
