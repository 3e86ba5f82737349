"""One description, many runs, one table and its plots."""
