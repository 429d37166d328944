"""The state of a target: what was decided, and how it is carried out; the protocol's home."""
