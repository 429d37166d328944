"""The sections of a settings file, their checks and error messages, and drafts of new files."""
