"""What a worker sees of itself: where its time goes, and where its threads stand."""
