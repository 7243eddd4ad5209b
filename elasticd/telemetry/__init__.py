"""What elasticd reports of itself: its log, its metrics, its process titles and the
memory limits.
"""
