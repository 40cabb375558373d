-- migrate:up
-- Definitions with all of some labels, by their index. It is read by a bitmap, which sessions do not use otherwise.
CREATE FUNCTION scheduler.labelled_definitions(labels jsonb) RETURNS SETOF scheduler.job_definitions
    LANGUAGE sql STABLE SET enable_bitmapscan = on SET search_path = pg_catalog, pg_temp
    AS $$ SELECT d.* FROM scheduler.job_definitions d WHERE d.spec -> 'labels' @> labels $$;

-- migrate:down
DROP FUNCTION scheduler.labelled_definitions(jsonb);
