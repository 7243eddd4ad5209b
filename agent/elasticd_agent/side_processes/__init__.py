"""The processes beside a job's workers: its keeper and its event writer."""
