"""The claims that `python -m theory.verify` checks, one file for each part of the theory; each file lists `CLAIMS`."""
