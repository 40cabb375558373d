-- migrate:up
-- As scheduler/0009: what makes and drops partitions runs with the owner's rights, for the log-archiver alone.
ALTER FUNCTION logs.ensure_partitions(date, date) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION logs.drop_archived(date, bigint) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION logs.forget_day(date, bigint) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION logs.uncovered(date) SET search_path = pg_catalog, pg_temp;
REVOKE ALL ON FUNCTION logs.ensure_partitions(date, date), logs.uncovered(date) FROM PUBLIC;

-- migrate:down
GRANT EXECUTE ON FUNCTION logs.ensure_partitions(date, date), logs.uncovered(date) TO PUBLIC;
ALTER FUNCTION logs.uncovered(date) SET search_path = pg_catalog, logs;
ALTER FUNCTION logs.forget_day(date, bigint) SECURITY INVOKER SET search_path = pg_catalog, logs;
ALTER FUNCTION logs.drop_archived(date, bigint) SECURITY INVOKER SET search_path = pg_catalog, logs;
ALTER FUNCTION logs.ensure_partitions(date, date) SECURITY INVOKER SET search_path = pg_catalog, logs;
