"""A deterministic simulator that drives the shipped `decide`: virtual time, one seed, no thread.

Everything around the core is simulated and as unkind as the real thing: etcd with revisions,
leases and watches that are late, repeated or lost; machines that stop, die and come back;
workers that echo each other's death. `run` plays one seed, `schedule` draws what happens in it,
`history` knows what must never be seen. A failing seed is replayed by
`python -m tests.sim.run --seed N`.
"""
