"""Training scripts that write down every step they make, for the verdict to judge."""
