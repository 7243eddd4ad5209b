"""What elasticd reports of itself: its log, metrics, process titles and limits of memory."""
