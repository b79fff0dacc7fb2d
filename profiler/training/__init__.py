"""The embedded pair, trained from nothing."""
