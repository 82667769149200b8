"""The job `chunks`: large messages in chunks (PIP-37)."""
