"""The account of a job's slot time, and the formula of goodput, for all who show or use them. Pure.

Every second of every slot that a node holds for a job belongs to exactly one cause. No module here
measures: the facts contain the times, from the one clock of the agent that keeps the account.
Accounts of several nodes are added, never compared, so that no two hosts' clocks are compared.
"""
