"""What becomes of the files that workers write to: a look at them once a second, on a thread.

`silence` decides, purely, that workers have written nothing for too long; `watch` is the thread.
Workers write into their files directly, so that no byte passes through a process that could end or
stand still; whatever is wanted of the output is therefore read from the files' sizes.
"""

__all__: list[str] = []
