"""`[match] within`: the group of a record, and how texts of different groups are kept apart."""
