"""The paper's figures, drawn from recorded results."""
