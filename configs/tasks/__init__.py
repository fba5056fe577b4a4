"""Task sets with their lengths and metrics."""
