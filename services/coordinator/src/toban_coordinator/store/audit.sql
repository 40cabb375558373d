-- name: note
-- One action of an operator.
INSERT INTO scheduler.admin_action_log (actor, action, target, before, after, reason)
VALUES (%(actor)s::text, %(action)s::text, %(target)s::text, %(before)s::jsonb, %(after)s::jsonb, %(reason)s::text)

-- name: note_all
-- Actions of operators, in the order of a list.
INSERT INTO scheduler.admin_action_log (actor, action, target, before, after, reason)
SELECT a ->> 'actor', a ->> 'action', a ->> 'target', NULLIF(a -> 'before', 'null'), NULLIF(a -> 'after', 'null'), a ->> 'reason'
  FROM jsonb_array_elements(%(actions)s::jsonb) WITH ORDINALITY AS i(a, place)
 ORDER BY place

-- name: page
-- Actions of operators, newest first.
SELECT a.id, a.at, a.actor, a.action, a.target, coalesce(a.before::text, '') AS before, coalesce(a.after::text, '') AS after, a.reason
  FROM scheduler.admin_action_log a
 WHERE a.id < %(below)s::bigint
 ORDER BY a.id DESC
 LIMIT %(limit)s::integer
