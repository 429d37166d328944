"""How a run is put together and carried out; start reading at job.py."""
