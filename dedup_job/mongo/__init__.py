"""The only place that talks to MongoDB."""
