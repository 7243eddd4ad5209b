"""How the command line writes for people: tables and sentences."""
