"""`verify`: check that source, ledger and target agree, without the code that wrote them."""
