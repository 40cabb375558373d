-- name: ended
-- Runs that ended in a span, by the intervals of `interval` seconds in which they began and ended, both as numbers from 1970 on. `in_first` and
-- `in_last` are the seconds that they held slots in these two; the wait is that of the first attempts that ended in the interval.
WITH r AS MATERIALIZED (
    SELECT h.state::text AS state, extract(epoch FROM h.finished_at)::double precision AS ended,
           extract(epoch FROM h.started_at)::double precision AS begun, extract(epoch FROM h.scheduled_for)::double precision AS due,
           h.attempt = 1 AND h.lost_count = 0 AS first_attempt
      FROM scheduler.runs_history h
     WHERE h.finished_at >= to_timestamp(%(since)s::bigint) AND h.finished_at < to_timestamp(%(until)s::bigint) AND h.state <> 'SKIPPED'
), n AS (
    SELECT r.*, floor(r.ended / %(interval)s::integer)::bigint AS last, floor(r.begun / %(interval)s::integer)::bigint AS first FROM r
), waits AS (
    SELECT n.last, percentile_disc(0.95) WITHIN GROUP (ORDER BY greatest(n.begun - n.due, 0)) AS wait
      FROM n WHERE n.first_attempt AND n.begun IS NOT NULL
     GROUP BY n.last
)
SELECT n.last, n.first, count(*)::bigint AS runs, count(*) FILTER (WHERE n.state = 'SUCCEEDED')::bigint AS succeeded,
       count(*) FILTER (WHERE n.state = ANY(%(failed)s::text[]))::bigint AS failed,
       COALESCE(sum(least(n.ended, (n.first + 1) * %(interval)s::integer) - n.begun), 0)::double precision AS in_first,
       COALESCE(sum(CASE WHEN n.last > n.first THEN n.ended - n.last * %(interval)s::integer END), 0)::double precision AS in_last,
       (SELECT w.wait FROM waits w WHERE w.last = n.last) AS wait
  FROM n
 GROUP BY n.last, n.first;

-- name: live
-- Runs that hold slots now, by the interval in which they began; `in_first` as above.
SELECT x.first, count(*)::bigint AS runs, sum(least((x.first + 1) * %(interval)s::integer, %(now)s::double precision) - x.begun)::double precision AS in_first
  FROM (SELECT extract(epoch FROM l.started_at)::double precision AS begun,
               floor(extract(epoch FROM l.started_at) / %(interval)s::integer)::bigint AS first
          FROM scheduler.runs_live l
         WHERE l.state IN ('RUNNING', 'CANCEL_REQUESTED', 'ORPHANED') AND l.started_at IS NOT NULL
         LIMIT %(limit)s::integer) x
 GROUP BY x.first;
