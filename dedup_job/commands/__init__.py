"""One module for each command, named after it, and the modules that several commands share.

`report` is in `dry_run_report.py`, since another package has its name.
"""
