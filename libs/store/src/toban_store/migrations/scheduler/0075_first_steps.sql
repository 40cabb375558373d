-- migrate:up
-- Reruns from the step that failed. `base_step` of a live run: the step before which none of its attempts begins, NULL = the first. A coordinator
-- of the release before does not know it: its retry from the first step is refused here. `first_step` goes to the history: a dispatch that started
-- no step failed at that one.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.runs_live ADD COLUMN base_step integer CHECK (base_step > 0 AND COALESCE(first_step, 0) >= base_step);
ALTER TABLE scheduler.runs_history ADD COLUMN first_step integer;
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
ALTER TABLE scheduler.runs_live DROP COLUMN base_step;
ALTER TABLE scheduler.runs_history DROP COLUMN first_step;
DO $$ BEGIN
    EXECUTE (
        SELECT format('CREATE VIEW scheduler.job_runs AS SELECT %1$s FROM scheduler.runs_live UNION ALL SELECT %1$s FROM scheduler.runs_history',
                      string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum))
          FROM pg_attribute a WHERE a.attrelid = 'scheduler.runs_history'::regclass AND a.attnum > 0 AND NOT a.attisdropped);
END $$;
