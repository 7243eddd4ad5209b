"""The exchanges between the ranks of one generation through its TCPStore."""
