"""The progress of a run on the terminal: one line that is redrawn, or plain lines.

`speed` and `sentence` are pure; `terminal_line` draws, and `reporter` asks the agents on a thread.
"""

__all__: list[str] = []
