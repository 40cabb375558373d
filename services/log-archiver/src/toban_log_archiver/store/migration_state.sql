-- What has been migrated.

-- name: applied
-- Every migration that was applied, of both schemas.
SELECT schema, version, checksum FROM public.toban_migrations;
