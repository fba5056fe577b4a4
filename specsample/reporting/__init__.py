"""Results as files, tables and plots."""
