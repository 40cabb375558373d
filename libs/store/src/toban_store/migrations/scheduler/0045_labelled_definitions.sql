-- migrate:up
-- Definitions with all of some labels, by their index. It is read by a bitmap, which sessions do not use otherwise.
CREATE FUNCTION scheduler.labelled_definitions(labels jsonb) RETURNS SETOF scheduler.job_definitions
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = on
    AS $$ SELECT d.* FROM scheduler.job_definitions d WHERE d.spec -> 'labels' @> labels $$;
REVOKE ALL ON FUNCTION scheduler.labelled_definitions(jsonb) FROM PUBLIC;

-- migrate:down
DROP FUNCTION scheduler.labelled_definitions(jsonb);
