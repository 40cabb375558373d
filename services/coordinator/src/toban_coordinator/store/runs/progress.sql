-- name: note
-- What jobs say of how far they are: onto live runs, by (run, token, incarnation), unless a later word of that token is there: two coordinators may
-- write at once. The state stays; `version` tells watchers of the change.
WITH input AS MATERIALIZED (
    SELECT i.id, i.token, i.incarnation, i.progress
      FROM jsonb_to_recordset(%(notes)s::jsonb) AS i(id bigint, token bigint, incarnation uuid, progress jsonb)
), locked AS MATERIALIZED (
    SELECT r.id FROM scheduler.runs_live r WHERE r.id = ANY(%(ids)s::bigint[]) ORDER BY r.id FOR NO KEY UPDATE
)
UPDATE scheduler.runs_live r
   SET progress = i.progress, version = r.version + 1
  FROM input i JOIN locked l ON l.id = i.id
 WHERE r.id = ANY(%(ids)s::bigint[]) AND r.id = i.id AND r.token = i.token AND r.assigned_incarnation = i.incarnation
   AND r.state::text IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED') AND r.progress IS DISTINCT FROM i.progress
   AND coalesce((r.progress ->> 'at')::timestamptz <= (i.progress ->> 'at')::timestamptz, true)
RETURNING r.id
