-- name: own_role
-- The role that this session acts as: what it may beyond a service, which schemas of Toban it may act as the owner of, whether it works in the other
-- service's schema, whether its own schema belongs to a superuser; and of a list of rights those that it lacks, and those that it should not have.
SELECT r.rolname::text AS role,
       ARRAY (SELECT a.name
                FROM (VALUES ('SUPERUSER', r.rolsuper), ('CREATEROLE', r.rolcreaterole), ('CREATEDB', r.rolcreatedb),
                             ('REPLICATION', r.rolreplication), ('BYPASSRLS', r.rolbypassrls)) AS a (name, has)
               WHERE a.has) AS attributes,
       ARRAY (SELECT p.rolname::text FROM pg_catalog.pg_roles p
               WHERE p.rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files',
                                   'pg_execute_server_program')
                 AND NOT r.rolsuper AND pg_has_role(r.oid, p.oid, 'MEMBER')
               ORDER BY 1) AS memberships,
       ARRAY (SELECT n.nspname::text FROM pg_catalog.pg_namespace n
               WHERE n.nspname IN ('scheduler', 'logs') AND pg_has_role(r.oid, n.nspowner, 'MEMBER') ORDER BY 1) AS owned,
       COALESCE(has_schema_privilege(r.oid, to_regnamespace(%(other_schema)s::text), 'USAGE'), false) AS other_schema,
       EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
                WHERE n.nspname = %(schema)s::text AND o.rolsuper) AS superuser_owns,
       ARRAY (SELECT w.privilege || ' of ' || w.name
                FROM unnest(%(names)s::text[], %(privileges)s::text[], %(granted)s::boolean[]) AS w (name, privilege, granted)
               WHERE w.granted AND NOT has_any_column_privilege(r.oid, to_regclass(w.name), w.privilege)
                 AND NOT has_table_privilege(r.oid, to_regclass(w.name), w.privilege)
               ORDER BY 1) AS lacks,
       ARRAY (SELECT w.privilege || ' of ' || w.name
                FROM unnest(%(names)s::text[], %(privileges)s::text[], %(granted)s::boolean[]) AS w (name, privilege, granted)
               WHERE NOT w.granted AND has_table_privilege(r.oid, to_regclass(w.name), w.privilege)
               ORDER BY 1) AS exceeds
  FROM pg_catalog.pg_roles r
 WHERE r.rolname = current_user
