"""Where the time of a job's slots went: one account, one formula, for all who show or use it. Pure.

Every second of every slot that a node holds for a job belongs to exactly one cause. Nothing here
measures: time comes in with the facts, from the one clock of the agent that keeps the account.
Accounts of several nodes are added, never compared, so that no two hosts' clocks meet.
"""
