"""Drives the shipped `decide` over a trace, with a clock that nobody waits for.

A `JobScenario` says how long a step takes at each size and time, which nodes are there, what goes
wrong, and what a change costs. `simulate` lets a scaler, the autoscaler by default, live through it
and returns a `Trace`; `replay` does so on what a real job has measured, under another policy.
"""
