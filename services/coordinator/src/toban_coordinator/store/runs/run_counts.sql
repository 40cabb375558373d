-- fragment: ran
-- A run `r` that had begun before `until` and not ended by `since`: its group, its state, and the first and last interval in which it ran, as numbers
-- from 1970 on. One that ended at the begin of an interval did not run in it.
SELECT CASE WHEN %(by)s::text = 'job' THEN r.job_name ELSE e.node_id END AS name, r.state::text AS state,
       floor(extract(epoch FROM greatest(r.started_at, %(since)s::timestamptz))::double precision / %(interval)s::bigint)::bigint AS first,
       (ceil(extract(epoch FROM least(COALESCE(r.finished_at, now()), %(until)s::timestamptz))::double precision / %(interval)s::bigint) - 1)::bigint AS last

-- fragment: began
-- Whether run `r` ran between `since` and `until`, and has an executor when they are grouped by it.
r.started_at < %(until)s::timestamptz AND (r.finished_at IS NULL OR r.finished_at > %(since)s::timestamptz OR r.started_at >= %(since)s::timestamptz)
AND (%(by)s::text = 'job' OR r.assigned_incarnation IS NOT NULL)

-- fragment: seen
-- Whether the person may see run `r`: always without `restricted`.
(NOT %(restricted)s::boolean OR (r.definition_id, r.scope, r.scope_id) IN (
    SELECT u.* FROM unnest(%(seen_definitions)s::bigint[], %(seen_scopes)s::text[], %(seen_scope_ids)s::text[]) AS u))

-- name: counts
-- How many runs are alike, for each group, state, first and last interval. Groups beyond `groups` are one with name ''. A row with total alone when
-- there are none, or more than `most`.
WITH r AS MATERIALIZED (
    ({{ran}}
       FROM scheduler.runs_live r
       LEFT JOIN scheduler.executors e ON %(by)s::text <> 'job' AND e.incarnation = r.assigned_incarnation
      WHERE {{narrowed}} AND {{began}} AND {{seen}}
      LIMIT %(most)s::integer + 1)
    UNION ALL
    ({{ran}}
       FROM scheduler.runs_history r
       LEFT JOIN scheduler.executors e ON %(by)s::text <> 'job' AND e.incarnation = r.assigned_incarnation
      WHERE {{narrowed}} AND {{ended_since}} AND {{began}} AND {{seen}}
      LIMIT %(most)s::integer + 1)
), n AS MATERIALIZED (
    SELECT count(*) AS total FROM r
), g AS (
    SELECT r.name, row_number() OVER (ORDER BY count(*) DESC, r.name) AS place, count(*) OVER () AS all_groups
      FROM r CROSS JOIN n
     WHERE n.total <= %(most)s::integer AND r.name IS NOT NULL
     GROUP BY r.name
), k AS (
    -- A rest of one group is that group.
    SELECT g.name, CASE WHEN g.place <= %(groups)s::integer OR g.all_groups = %(groups)s::integer + 1 THEN g.name ELSE '' END AS shown,
           g.all_groups - %(groups)s::integer AS others
      FROM g
), x AS (
    SELECT k.shown AS name, CASE WHEN k.shown = '' THEN k.others ELSE 0 END AS others, r.state, r.first, greatest(r.first, r.last) AS last,
           count(*) AS runs
      FROM r JOIN k ON k.name = r.name
     GROUP BY 1, 2, 3, 4, 5
)
SELECT n.total, x.* FROM n LEFT JOIN x ON true

-- name: job_scopes
-- The definitions and scopes of the runs that `counts` reads for a person who sees all: one run of each, and how many there are.
SELECT min(u.id) AS run, u.definition_id, u.scope, u.scope_id, count(*) AS runs
  FROM ((SELECT r.id, r.definition_id, r.scope, r.scope_id FROM scheduler.runs_live r
          WHERE {{narrowed}} AND {{began}} LIMIT %(most)s::integer + 1)
        UNION ALL
        (SELECT r.id, r.definition_id, r.scope, r.scope_id FROM scheduler.runs_history r
          WHERE {{narrowed}} AND {{ended_since}} AND {{began}} LIMIT %(most)s::integer + 1)) u
 GROUP BY 2, 3, 4

-- name: oldest
-- When the oldest run that is kept was created: none ran before.
SELECT r.created_at AS at FROM scheduler.job_runs r ORDER BY r.id LIMIT 1
