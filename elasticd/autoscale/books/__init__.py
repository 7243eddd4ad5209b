"""What came of each decision: the verdict, and what the curve remembers of it."""
