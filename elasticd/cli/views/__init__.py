"""What is looked at for longer: the terminal's top and the browser's dashboard."""
