-- name: hold
-- Registrations work with the groups as they are until their transaction ends; a change of groups waits for them.
SELECT pg_advisory_xact_lock_shared(hashtext('scheduler.executor_groups'))

-- name: hold_alone
-- One change of groups at a time, and no registration meanwhile.
SELECT pg_advisory_xact_lock(hashtext('scheduler.executor_groups'))

-- name: groups
-- Every group, or the one called `name`, with how many executors and instances it has.
SELECT g.name, g.labels, g.claims, g.job_labels, g.version, g.updated_at, g.updated_by,
       (SELECT count(*) FROM scheduler.executors e WHERE e.executor_group = g.name AND e.state <> 'off') AS executors,
       (SELECT count(*) FROM scheduler.executor_instances i WHERE i.executor_group = g.name) AS instances
  FROM scheduler.executor_groups g
 WHERE %(name)s::text = '' OR g.name = %(name)s::text
 ORDER BY g.name

-- name: own_instance
-- The group that an instance belongs to: that of its first registration. A row without one is of a release before groups.
INSERT INTO scheduler.executor_instances AS i (instance, executor_group)
SELECT %(instance)s::text,
       coalesce((SELECT e.executor_group FROM scheduler.executors e WHERE e.instance = %(instance)s::text ORDER BY e.worker_id LIMIT 1),
                %(group)s::text)
    ON CONFLICT (instance) DO UPDATE SET instance = excluded.instance
RETURNING i.executor_group

-- name: make
-- ∅ → a group.
INSERT INTO scheduler.executor_groups (name, labels, claims, job_labels, updated_by)
VALUES (%(name)s::text, %(labels)s::jsonb, %(claims)s::text[], %(job_labels)s::jsonb, %(actor)s::text)
ON CONFLICT (name) DO NOTHING

-- name: change
-- A group → its next version; no row when it is not there.
UPDATE scheduler.executor_groups g
   SET labels = %(labels)s::jsonb, claims = %(claims)s::text[], job_labels = %(job_labels)s::jsonb, version = g.version + 1,
       updated_at = now(), updated_by = %(actor)s::text
 WHERE g.name = %(name)s::text

-- name: remove
-- A group → ∅.
DELETE FROM scheduler.executor_groups g WHERE g.name = %(name)s::text

-- name: forget_instances
-- The instances of a group that is removed.
DELETE FROM scheduler.executor_instances i WHERE i.executor_group = %(name)s::text

-- name: running
-- Executors that are not off, with their labels, in the order in which their rows are locked.
SELECT e.incarnation::text AS incarnation, e.executor_group, e.labels
  FROM scheduler.executors e
 WHERE e.state <> 'off'
 ORDER BY e.incarnation
   FOR NO KEY UPDATE OF e

-- name: relabel
-- Other labels for an executor that is not off.
UPDATE scheduler.executors e SET labels = %(labels)s::jsonb WHERE e.incarnation = %(incarnation)s::uuid AND e.state <> 'off'

-- name: unmovable
-- Of these instances those that are not known, or have an executor that is not off.
SELECT w.instance, i.instance IS NOT NULL AS known
  FROM unnest(%(instances)s::text[]) AS w(instance)
  LEFT JOIN scheduler.executor_instances i USING (instance)
 WHERE i.instance IS NULL OR EXISTS (SELECT 1 FROM scheduler.executors e WHERE e.instance = w.instance AND e.state <> 'off')
 ORDER BY w.instance

-- name: move
-- These instances → another group.
UPDATE scheduler.executor_instances i SET executor_group = %(name)s::text WHERE i.instance = ANY (%(instances)s::text[])
