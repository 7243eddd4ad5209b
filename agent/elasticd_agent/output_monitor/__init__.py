"""Watches the files to which workers write: a thread looks at them once a second.

`silence` decides, purely, that workers have written nothing for too long; `watch` is the thread.
Workers write into their files directly, so that no byte passes through a process that could end or
stand still; all facts about the output are therefore read from the files' sizes.
"""

__all__: list[str] = []
