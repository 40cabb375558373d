-- migrate:up
-- Where the present epoch was taken (docs/fencing.md 3.2): the server, its timeline and the database in it, which is another one after a restore.
-- A take-over in the same place needs no new generation, settled or not: leaders that change quickly after a fail-over would use them up.
ALTER TABLE scheduler.leader ADD COLUMN term_system_id text, ADD COLUMN term_timeline bigint, ADD COLUMN term_database oid;

-- migrate:down
ALTER TABLE scheduler.leader DROP COLUMN term_system_id, DROP COLUMN term_timeline, DROP COLUMN term_database;
