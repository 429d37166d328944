"""Verify: whether source, ledger and target agree, told without the code that made them."""
