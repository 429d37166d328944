"""What a settings file says, and how what is wrong with it is told."""
