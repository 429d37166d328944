"""The HTML page of a report: one file that loads nothing from anywhere."""
