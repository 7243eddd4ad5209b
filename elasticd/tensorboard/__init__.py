"""Event files that TensorBoard reads, written without it and without torch.

What a job's commits were given becomes one immutable file a flush: a file on object storage cannot
grow, and to write the whole of it anew each time would be quadratic.
"""
