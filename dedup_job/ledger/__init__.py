"""The ledger: store decisions, and apply them to the target."""
