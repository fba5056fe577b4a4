"""What drafters look up instead of computing: stores of text on disk, in memory, or on the host."""
