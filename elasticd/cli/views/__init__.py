"""The commands that are watched for longer: the terminal's top and the browser's dashboard."""
