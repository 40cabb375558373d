-- Day partitions of logs.chunks and logs.tokens.

-- name: state
-- PostgreSQL's day (UTC), and which of some days have a partition.
SELECT (now() AT TIME ZONE 'UTC')::date AS today,
       ARRAY (SELECT d FROM unnest(%(days)s::date[]) AS d
               WHERE to_regclass('logs.chunks_' || to_char(d, 'YYYYMMDD')) IS NOT NULL
                 AND to_regclass('logs.tokens_' || to_char(d, 'YYYYMMDD')) IS NOT NULL) AS present;

-- name: ensure
-- Makes the missing partitions of the days [first, last]; safe to repeat and to run twice at once.
SELECT logs.ensure_partitions(%(first)s::date, %(last)s::date) AS made;

-- name: migrated
-- Whether schema logs is there.
SELECT to_regclass('logs.chunks') IS NOT NULL AS migrated;

-- name: applied
-- Every migration that was applied, of both schemas.
SELECT schema, version, checksum FROM public.toban_migrations;
