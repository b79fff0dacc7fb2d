"""The report of a run folder: one HTML page that needs no network."""
