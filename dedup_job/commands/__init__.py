"""One module for each command, named after it, and the modules that several commands share."""
