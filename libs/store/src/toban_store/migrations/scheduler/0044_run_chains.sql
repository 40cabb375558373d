-- migrate:up
-- Triggers on the end of a run: the end is an event of its own type, which no application can emit, written in the statement that ends the run.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.event_triggers ADD COLUMN run_end boolean NOT NULL DEFAULT false;
-- Whether there is any: asked for each batch of ends.
CREATE INDEX event_triggers_run_end ON scheduler.event_triggers (event_type) WHERE enabled AND run_end;
ALTER TABLE scheduler.events
    DROP CONSTRAINT events_event_type_check,
    ADD CONSTRAINT events_event_type_check CHECK (event_type ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$' OR event_type = '@run-end') NOT VALID;

-- The run whose end started a run, and how many such starts led to it.
ALTER TABLE scheduler.runs_live ADD COLUMN after_run bigint, ADD COLUMN chain_depth integer NOT NULL DEFAULT 0;
ALTER TABLE scheduler.runs_history ADD COLUMN after_run bigint, ADD COLUMN chain_depth integer NOT NULL DEFAULT 0;
DROP VIEW scheduler.job_runs;
-- The columns of the history: live runs have more.
DO $$ BEGIN
    EXECUTE (
        SELECT format('CREATE VIEW scheduler.job_runs AS SELECT %1$s FROM scheduler.runs_live UNION ALL SELECT %1$s FROM scheduler.runs_history',
                      string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum))
          FROM pg_attribute a WHERE a.attrelid = 'scheduler.runs_history'::regclass AND a.attnum > 0 AND NOT a.attisdropped);
END $$;

-- migrate:down
DROP VIEW scheduler.job_runs;
ALTER TABLE scheduler.runs_live DROP COLUMN after_run, DROP COLUMN chain_depth;
ALTER TABLE scheduler.runs_history DROP COLUMN after_run, DROP COLUMN chain_depth;
DO $$ BEGIN
    EXECUTE (
        SELECT format('CREATE VIEW scheduler.job_runs AS SELECT %1$s FROM scheduler.runs_live UNION ALL SELECT %1$s FROM scheduler.runs_history',
                      string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum))
          FROM pg_attribute a WHERE a.attrelid = 'scheduler.runs_history'::regclass AND a.attnum > 0 AND NOT a.attisdropped);
END $$;
DELETE FROM scheduler.events WHERE event_type = '@run-end';
ALTER TABLE scheduler.events
    DROP CONSTRAINT events_event_type_check,
    ADD CONSTRAINT events_event_type_check CHECK (event_type ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$') NOT VALID;
DELETE FROM scheduler.event_triggers WHERE run_end;
DROP INDEX scheduler.event_triggers_run_end;
ALTER TABLE scheduler.event_triggers DROP COLUMN run_end;
