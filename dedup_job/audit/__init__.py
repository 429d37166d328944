"""An independent check that source, ledger and target agree."""
