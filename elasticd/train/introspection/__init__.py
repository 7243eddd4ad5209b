"""What a worker observes of itself: where its time goes, and where its threads stand."""
