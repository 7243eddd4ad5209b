"""What the ranks of one generation tell each other through its TCPStore."""
