"""What runs in a worker's own process: it becomes the job's, runs the script, reports its end.

`worker` is the way in: it sets up streams and environment, with `output` for the log files, and
calls `as_main`, which runs the script as Python would. `report` tells the pool how the worker
fares, and `raised` describes the exception that left the script. The worker holds `robust_mutex` as
long as it lives.
"""

__all__: list[str] = []
