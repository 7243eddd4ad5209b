"""The command line's output for people: tables and sentences."""
