"""Schema `scheduler`: one module and one .sql an aggregate. Only the coordinator imports it."""
