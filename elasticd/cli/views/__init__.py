"""What is looked at for longer: the dashboard."""
