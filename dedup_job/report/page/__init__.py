"""The HTML page of a report or a run: one file that loads nothing from the network."""
