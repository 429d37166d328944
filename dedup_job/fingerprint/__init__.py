"""Text in, fingerprint out; runs on workers; knows no database."""
