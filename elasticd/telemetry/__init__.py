"""What elasticd says of itself: its log, and later its metrics and its account of lost time."""
