"""The reports of elasticd about itself: its log, metrics, process titles and limits of memory."""
