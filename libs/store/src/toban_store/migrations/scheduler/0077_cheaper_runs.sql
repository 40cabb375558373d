-- migrate:up
-- What each run pays for. The usual transitions are known to the trigger itself, without a call of its function: a test compares them with
-- run_transitions. The row of an attempt grows at its end: the room that its page keeps for that makes the update one without index entries.
SET LOCAL lock_timeout = '10s';
CREATE OR REPLACE TRIGGER runs_live_transition BEFORE UPDATE OF state ON scheduler.runs_live
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state
                       AND NOT (OLD.state = 'PENDING' AND NEW.state IN ('ASSIGNED', 'WAITING_WORKER'))
                       AND NOT (OLD.state = 'ASSIGNED' AND NEW.state = 'RUNNING'))
    EXECUTE FUNCTION scheduler.check_transition();

CREATE OR REPLACE FUNCTION scheduler.ensure_partitions(first date, last date) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC'
    AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('scheduler.ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['runs_history', 'job_attempts', 'job_events', 'events_history'] LOOP
        FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            IF to_regclass('scheduler.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE scheduler.%I PARTITION OF scheduler.%I FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = %s)',
                               child, parent, day, day + 1, CASE parent WHEN 'job_attempts' THEN 30 ELSE 100 END);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- Those of today and later days.
DO $$
DECLARE
    child text;
BEGIN
    FOR child IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'scheduler.job_attempts'::regclass
           AND c.relname >= 'job_attempts_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')
    LOOP
        EXECUTE format('ALTER TABLE scheduler.%I SET (fillfactor = 30)', child);
    END LOOP;
END $$;

-- migrate:down
CREATE OR REPLACE FUNCTION scheduler.ensure_partitions(first date, last date) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC'
    AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('scheduler.ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['runs_history', 'job_attempts', 'job_events', 'events_history'] LOOP
        FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            IF to_regclass('scheduler.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE scheduler.%I PARTITION OF scheduler.%I FOR VALUES FROM (%L) TO (%L)',
                               child, parent, day, day + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
CREATE OR REPLACE TRIGGER runs_live_transition BEFORE UPDATE OF state ON scheduler.runs_live
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION scheduler.check_transition();
