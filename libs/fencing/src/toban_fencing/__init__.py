"""Election, members, the executor's epoch gate; the only importer of redis."""
