"""The page: what would go, or what a run did, as one HTML file that loads nothing from anywhere."""
