-- migrate:up
-- Those of these runs that end after a failure of their job: the one before them that did not succeed. Read before the statement that calls it,
-- whose own ends it does not see (STABLE). PL/pgSQL keeps its plan, so that a caller opens the days of the history only when it calls.
CREATE FUNCTION scheduler.ends_after_failures(ids bigint[], jobs text[]) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    RETURN QUERY
    SELECT i.id
      FROM unnest(ids, jobs) AS i(id, job)
     WHERE (SELECT h.state <> 'SUCCEEDED'
              FROM scheduler.runs_history h
             WHERE h.job_name = i.job AND h.id < i.id AND h.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'EXPIRED')
             ORDER BY h.id DESC LIMIT 1);
END $$;
REVOKE ALL ON FUNCTION scheduler.ends_after_failures(bigint[], text[]) FROM PUBLIC;

-- migrate:down
DROP FUNCTION scheduler.ends_after_failures(bigint[], text[]);
