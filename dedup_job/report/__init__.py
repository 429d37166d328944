"""What people read: results as text and JSON, progress, logs, metrics, and the HTML page."""
