"""What it takes to save a snapshot: its stages, and the uploads of the shares that are here."""
