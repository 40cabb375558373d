-- name: catalogue
-- Our roles, and in both schemas and the table of migrations: schemas, columns by table (partitions have no rights of their own), sequences that
-- are no identity, functions, and every right of our roles and of PUBLIC. An object without an ACL has the one that PostgreSQL gives by default.
WITH ours AS (
    SELECT r.oid, r.rolname::text AS name FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (%(roles)s::text[])
), grantees AS (
    SELECT oid, name FROM ours UNION ALL SELECT 0::oid, 'public'
), schemas AS (
    SELECT n.oid, n.nspname::text AS name, n.nspacl AS acl, n.nspowner AS owner FROM pg_catalog.pg_namespace n WHERE n.nspname IN ('scheduler', 'logs')
), relations AS (
    SELECT c.oid, n.nspname || '.' || c.relname AS name, c.relkind, c.relacl AS acl, c.relowner AS owner
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p', 'v', 'S') AND NOT c.relispartition
       AND (n.nspname IN ('scheduler', 'logs') OR (n.nspname = 'public' AND c.relname = 'toban_migrations'))
       AND NOT (c.relkind = 'S' AND EXISTS (SELECT 1 FROM pg_catalog.pg_depend d
                                             WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i'))
), columns AS (
    SELECT r.name, a.attname::text AS attname, a.attnum, a.attacl AS acl
      FROM relations r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE r.relkind <> 'S'
), functions AS (
    SELECT s.name || '.' || p.proname || '(' || COALESCE((SELECT string_agg(format_type(t.type, NULL), ',' ORDER BY t.place)
                                                            FROM unnest(p.proargtypes) WITH ORDINALITY AS t (type, place)), '') || ')' AS name,
           COALESCE(p.proacl, acldefault('f', p.proowner)) AS acl
      FROM pg_catalog.pg_proc p JOIN schemas s ON s.oid = p.pronamespace
), rights AS (
    SELECT 'SCHEMA' AS kind, s.name, x.grantee, x.privilege_type, '' AS attname FROM schemas s, aclexplode(s.acl) x
    UNION ALL
    SELECT CASE r.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, r.name, x.grantee, x.privilege_type, '' FROM relations r, aclexplode(r.acl) x
    UNION ALL
    SELECT 'TABLE', c.name, x.grantee, x.privilege_type, c.attname FROM columns c, aclexplode(c.acl) x
    UNION ALL
    SELECT 'FUNCTION', f.name, x.grantee, x.privilege_type, '' FROM functions f, aclexplode(f.acl) x
)
SELECT ARRAY (SELECT name FROM ours) AS roles, ARRAY (SELECT name FROM schemas) AS schemas,
       COALESCE((SELECT jsonb_object_agg(t.name, t.list)
                   FROM (SELECT name, jsonb_agg(attname ORDER BY attnum) AS list FROM columns GROUP BY name) t), '{}') AS tables,
       ARRAY (SELECT name FROM relations WHERE relkind = 'S') AS sequences, ARRAY (SELECT name FROM functions) AS functions,
       COALESCE((SELECT jsonb_agg(jsonb_build_array(x.kind, x.name, g.name, x.privilege_type, x.attname))
                   FROM rights x JOIN grantees g ON g.oid = x.grantee), '[]') AS rights
