"""Where fingerprinting runs."""
