-- migrate:up
-- Services are no owners any more (docs/database-roles.md): what makes and drops tables runs with the owner's rights, and only the role of its
-- service may call it. toban_store.privileges has the rights on tables.
ALTER FUNCTION scheduler.ensure_partitions(date, date) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION scheduler.drop_partition(date) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION scheduler.check_transition() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION scheduler.refuse_change() SET search_path = pg_catalog, pg_temp;
REVOKE ALL ON FUNCTION scheduler.check_transition(), scheduler.refuse_change() FROM PUBLIC;

-- migrate:down
GRANT EXECUTE ON FUNCTION scheduler.check_transition(), scheduler.refuse_change() TO PUBLIC;
ALTER FUNCTION scheduler.refuse_change() SET search_path = pg_catalog;
ALTER FUNCTION scheduler.check_transition() SET search_path = pg_catalog, scheduler;
ALTER FUNCTION scheduler.drop_partition(date) SECURITY INVOKER SET search_path = pg_catalog, scheduler;
ALTER FUNCTION scheduler.ensure_partitions(date, date) SECURITY INVOKER SET search_path = pg_catalog, scheduler;
