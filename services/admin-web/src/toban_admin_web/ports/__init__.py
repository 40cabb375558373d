"""What the pages ask for, and the records that they get."""
