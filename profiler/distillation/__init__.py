"""Drafters for a verifier that exists, trained on its own samples."""
