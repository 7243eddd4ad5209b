"""The outcome of each decision: the verdict, and the effect of the verdict on the curve."""
