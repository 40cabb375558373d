-- fragment: foreign_objects
-- What belongs to Toban and not to toban_owner: schemas first, since the owner of a table needs CREATE on its schema. A sequence of a column
-- follows its table.
SELECT o.kind, o.name, o.owner
  FROM (SELECT 0 AS place, 'SCHEMA' AS kind, quote_ident(n.nspname) AS name, n.nspowner AS owner
          FROM pg_catalog.pg_namespace n WHERE n.nspname IN ('scheduler', 'logs')
        UNION ALL
        SELECT 1, CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
               quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relowner
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p', 'v', 'S')
           AND (n.nspname IN ('scheduler', 'logs') OR (n.nspname = 'public' AND c.relname = 'toban_migrations'))
           AND NOT (c.relkind = 'S' AND EXISTS (SELECT 1 FROM pg_catalog.pg_depend d
                                                 WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')))
        UNION ALL
        SELECT 2, 'ROUTINE', p.oid::regprocedure::text, p.proowner
          FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('scheduler', 'logs')
        UNION ALL
        SELECT 3, 'TYPE', quote_ident(n.nspname) || '.' || quote_ident(t.typname), t.typowner
          FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
         WHERE n.nspname IN ('scheduler', 'logs') AND t.typtype IN ('e', 'd')) o
 WHERE o.owner IS DISTINCT FROM (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = 'toban_owner')
 ORDER BY o.place, o.name

-- name: create
-- Makes the roles that are missing, without a login, and lets this login act as toban_owner.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['toban_owner', 'toban_coordinator', 'toban_log_archiver', 'toban_readonly', 'toban_emit'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- the migration of another database of this server was quicker
        END;
    END LOOP;
    -- From PostgreSQL 16 on, who makes a role may grant it and not act as it.
    IF current_user <> 'toban_owner' AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        BEGIN
            EXECUTE format('GRANT toban_owner TO %I', current_user);
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- it may be a member already
        END;
    END IF;
END $$;

-- name: admit
-- What toban_owner needs of the database itself, to make its schemas and the table of migrations; the services connect.
DO $$
BEGIN
    IF NOT has_database_privilege('toban_owner', current_database(), 'CREATE')
       OR NOT has_schema_privilege('toban_owner', 'public', 'CREATE') THEN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO toban_owner', current_database());
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO toban_owner, toban_coordinator, toban_log_archiver, toban_readonly', current_database());
        GRANT CREATE ON SCHEMA public TO toban_owner;
        GRANT USAGE ON SCHEMA public TO toban_owner, toban_coordinator, toban_log_archiver, toban_readonly;
    END IF;
END $$;

-- name: transfer
-- Everything of Toban -> owned by toban_owner, one object a transaction: each lock is short, and services may run. Who owned it before, and
-- is no superuser, becomes a member of toban_owner, so that services which still use that login go on.
DO $$
DECLARE
    object record;
BEGIN
    FOR object IN
        SELECT DISTINCT r.rolname AS name FROM ({{foreign_objects}}) f JOIN pg_catalog.pg_roles r ON r.oid = f.owner
         WHERE NOT r.rolsuper AND NOT pg_has_role(r.oid, 'toban_owner', 'MEMBER')
    LOOP
        EXECUTE format('GRANT toban_owner TO %I', object.name);
    END LOOP;
    FOR object IN {{foreign_objects}} LOOP
        FOR attempt IN 1..60 LOOP
            BEGIN
                PERFORM set_config('lock_timeout', '500ms', true);
                EXECUTE format('ALTER %s %s OWNER TO toban_owner', object.kind, object.name);
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF attempt = 60 THEN
                    RAISE;
                END IF;
                PERFORM pg_sleep(0.5);
            END;
        END LOOP;
        COMMIT;
    END LOOP;
END $$;

-- name: state
-- How this login stands: which roles are missing and whether it may make them, whether it may act as toban_owner, whether that role may make
-- what a first migration makes, and how many objects belong to another role.
SELECT current_user AS login, r.rolsuper OR r.rolcreaterole AS may_create,
       ARRAY (SELECT n FROM unnest(%(roles)s::text[]) AS n WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles x WHERE x.rolname = n)) AS missing,
       COALESCE(pg_has_role(current_user, o.oid,
                            CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END), false) AS may_act,
       to_regnamespace('scheduler') IS NOT NULL
           OR COALESCE(has_database_privilege(o.oid, current_database(), 'CREATE') AND has_schema_privilege(o.oid, 'public', 'CREATE'), false)
           AS may_make,
       (SELECT count(*) FROM ({{foreign_objects}}) f)::integer AS foreign_objects
  FROM pg_catalog.pg_roles r LEFT JOIN pg_catalog.pg_roles o ON o.rolname = 'toban_owner'
 WHERE r.rolname = current_user
