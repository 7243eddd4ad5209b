"""What a worker and its keeper say to each other, and how it is framed."""
