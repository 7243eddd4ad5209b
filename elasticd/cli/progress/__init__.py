"""What a person sees of a run's progress while it runs: one live line, or plain lines.

`speed` and `sentence` are pure; `terminal_line` draws, `reporter` asks the agents on a thread.
"""

__all__: list[str] = []
