"""Measure drafter/verifier pairs: record, calibrate, sweep."""
