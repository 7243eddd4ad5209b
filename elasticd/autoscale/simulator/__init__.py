"""Runs the shipped `decide` on a simulated job, with a simulated clock.

A `JobScenario` has the time of a step at each size and time, the nodes that are there, the faults,
and the cost of a change. `simulate` runs a scaler, the autoscaler by default, through the scenario
and returns a `Trace`; `replay` does so on a real job's measurements, under another policy.
"""
