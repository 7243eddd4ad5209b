"""What elasticd costs and how fast it recovers, measured beside torchrun in the same run.

Each module is a program: `python -m tests.benchmarks.NAME [--trials N] [--json FILE]`;
`python -m tests.benchmarks.all` is `make bench` and writes docs/benchmarks.md. Nothing here is a
timed test: a figure below its target is printed and kept, and turns nothing red.

Only one of the compared programs runs at a time, and they take turns in blocks, so that a slow
minute of the machine hits all of them. Times are differences of CLOCK_MONOTONIC, which all
processes of one machine share.
"""
