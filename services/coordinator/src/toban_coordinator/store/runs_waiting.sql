-- name: waiting
-- A live run that was not sent, with what decides when it may start.
SELECT r.definition_id, r.definition_version, r.scheduled_for, r.not_before, now() AS server_time
  FROM scheduler.runs_live r
 WHERE r.id = %(id)s::bigint AND (r.state = 'PENDING' OR (r.state = 'ASSIGNED' AND r.dispatched_at IS NULL))
