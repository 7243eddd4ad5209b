"""The account that an agent keeps of each job it serves: where the time of its slots goes.

The rules of adding up are `elasticd.goodput`'s. Here it is fed from what the agent knows anyway:
the core's state after each decision, and the heartbeats of workers.
"""
