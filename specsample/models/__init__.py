"""Models that judge trees and draft them: transformers, and a table for exact tests."""
