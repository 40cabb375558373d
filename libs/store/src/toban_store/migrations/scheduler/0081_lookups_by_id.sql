-- migrate:up
-- While a snapshot is open (pg_dump), the entries of ended runs stay in the indexes, and the planner, which counts living runs, takes every index for
-- an empty one: it read all of this one to find a run by its id. With this predicate, which is always true, only a search for definitions uses it.
SET LOCAL lock_timeout = '10s';
DROP INDEX scheduler.runs_live_definition;
CREATE INDEX runs_live_definition ON scheduler.runs_live (definition_id, id) WHERE definition_id IS NOT NULL;
-- Runs that are being canceled are looked for each second, and few runs ever are: not among all that executors hold, or have held.
CREATE INDEX runs_live_canceling ON scheduler.runs_live (id) WHERE state = 'CANCEL_REQUESTED';

-- migrate:down
DROP INDEX scheduler.runs_live_canceling;
DROP INDEX scheduler.runs_live_definition;
CREATE INDEX runs_live_definition ON scheduler.runs_live (definition_id, id);
