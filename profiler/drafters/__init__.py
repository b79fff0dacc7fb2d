"""Drafters, one family a file."""
