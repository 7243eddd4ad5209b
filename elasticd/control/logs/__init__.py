"""The logs of workers: which part is asked for, when it was written, whose output is shown."""
