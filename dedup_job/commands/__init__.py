"""What each command does, with everything it needs opened and closed."""
