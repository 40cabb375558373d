"""PostgreSQL: pool, fenced transactions, migrations, SQL; the only importer of psycopg."""
