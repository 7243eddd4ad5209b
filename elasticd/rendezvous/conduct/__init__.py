"""What a member does about the world that stands. Pure."""
