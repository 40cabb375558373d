-- name: executors
-- Executors with how many runs each holds, newest last; of very many the newest, and no one that is off in place of one that is not.
SELECT e.worker_id, e.incarnation::text AS incarnation, e.instance, e.node_id, e.grpc_host, e.grpc_port, e.state, e.slots, e.labels,
       e.last_heartbeat_at, e.registered_at, e.grant_seq, e.lease_ms, e.version, e.off_reason,
       e.load, e.clock_skew_seconds, e.disk_free_bytes, e.certificate_not_after, d.instance IS NOT NULL AS drained, coalesce(d.reason, '') AS drain_reason,
       (SELECT count(*) FROM scheduler.runs_live r
         WHERE r.assigned_incarnation = e.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
           AND r.dispatched_at IS NOT NULL) AS running
  FROM (SELECT *
          FROM scheduler.executors x
         WHERE (%(worker_id)s::bigint = 0 OR x.worker_id = %(worker_id)s::bigint) AND (%(include_off)s::boolean OR x.state <> 'off')
         ORDER BY x.state = 'off', x.worker_id DESC
         LIMIT 1000) e
  LEFT JOIN scheduler.executor_drains d ON d.instance = e.instance
 ORDER BY e.worker_id

-- name: leader
-- Who leads, and whether the cluster that it was taken on is the one that this statement runs on.
SELECT l.epoch, l.worker_id, l.address, l.taken_at, l.resigned_epoch = l.epoch AS resigned, b.beaten_at, now() AS server_time,
       l.settled_system_id = scheduler.current_system_id() AND l.settled_timeline = scheduler.current_timeline() AS settled
  FROM scheduler.leader l CROSS JOIN scheduler.leader_beat b

-- name: coordinators
-- Coordinators that were here lately: ok, stopped by an operator, or lost.
SELECT c.worker_id, c.incarnation::text AS incarnation, c.node_id, c.address, c.role, c.last_seen_at, c.version,
       c.clock_skew_seconds, c.certificate_not_after,
       CASE WHEN c.status = 'ok' AND c.last_seen_at < now() - make_interval(secs => %(lost_after)s::double precision) THEN 'lost' ELSE c.status END
           AS status
  FROM scheduler.coordinators c
 WHERE c.last_seen_at > now() - interval '1 day'
 ORDER BY c.worker_id
 LIMIT 1000

-- name: counts
-- How many runs wait and how many are on executors.
SELECT count(*) FILTER (WHERE r.state = 'PENDING' AND r.scheduled_for <= now()) AS pending,
       count(*) FILTER (WHERE r.state IN ('RUNNING', 'CANCEL_REQUESTED') OR (r.state = 'ASSIGNED' AND r.dispatched_at IS NOT NULL)) AS running
  FROM scheduler.runs_live r
