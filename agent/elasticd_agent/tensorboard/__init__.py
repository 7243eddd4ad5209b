"""The process beside a job's workers that writes TensorBoard's event files."""

__all__: list[str] = []
