-- name: server
-- The server as doctor sees it; counts of connections are those of the whole server, of which a plain role sees user and database only.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS version_number,
       current_setting('fsync') = 'on' AS fsync, current_setting('full_page_writes') = 'on' AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit, pg_is_in_recovery() AS read_only,
       current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer AS max_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL)::integer AS connections,
       (SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()) AS encoding,
       current_setting('TimeZone') AS timezone,
       EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'toban_emit') AS emit_role,
       pg_database_size(current_database()) AS database_bytes, clock_timestamp() AS server_time;

-- name: migrations
-- What has been applied.
SELECT schema, version, name, checksum FROM public.toban_migrations;

-- name: missing_partitions
-- Day partitions from today to two days ahead that are not there.
SELECT p.parent, d.day::date AS day
  FROM unnest(%(parents)s::text[]) AS p (parent)
 CROSS JOIN generate_series((now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date + 2, interval '1 day') AS d (day)
 WHERE to_regclass('scheduler.' || p.parent || '_' || to_char(d.day, 'YYYYMMDD')) IS NULL
 ORDER BY d.day, p.parent;

-- name: leader
-- The leader row: how old its beat and its last finished tick are, in seconds.
SELECT l.epoch, coalesce(l.worker_id, 0) AS worker_id, l.address, l.resigned_epoch = l.epoch AS resigned,
       scheduler.is_settled(l) AS settled,
       extract(epoch FROM now() - b.beaten_at)::double precision AS beat_age,
       extract(epoch FROM now() - b.last_tick_at)::double precision AS tick_age
  FROM scheduler.leader l CROSS JOIN scheduler.leader_beat b;

-- name: coordinators
-- Coordinators of the last hour; one that was lost does not count when another serves at its address.
SELECT c.worker_id, c.node_id, c.address, c.version, c.role, c.status, c.clock_skew_seconds, c.certificate_not_after,
       extract(epoch FROM now() - c.last_seen_at)::double precision AS age
  FROM scheduler.coordinators c
 WHERE c.status = 'ok' AND c.last_seen_at > now() - interval '1 hour'
   AND NOT EXISTS (SELECT 1 FROM scheduler.coordinators n
                    WHERE n.address = c.address AND n.node_id = c.node_id AND n.started_at > c.started_at)
 ORDER BY c.worker_id
 LIMIT 1000;

-- name: executors
-- Executors that are not off, and those that went off within the last hour without coming back.
SELECT e.worker_id, e.node_id, e.grpc_host || ':' || e.grpc_port AS address, e.state, e.version, e.off_reason, e.lease_ms / 1000.0::double precision
           AS lease_seconds,
       e.clock_skew_seconds, e.disk_free_bytes, e.certificate_not_after, e.quarantined_outcomes, e.quarantined_chunks, e.unreachable,
       e.isolation, e.isolation_details, e.labels,
       coalesce(d.reason, '') AS drain_reason,
       extract(epoch FROM now() - e.last_heartbeat_at)::double precision AS age
  FROM scheduler.executors e
  LEFT JOIN scheduler.executor_drains d ON d.instance = e.instance
 WHERE e.state <> 'off'
    OR (e.off_at > now() - interval '1 hour'
        AND NOT EXISTS (SELECT 1 FROM scheduler.executors n WHERE n.instance = e.instance AND n.registered_at > e.registered_at))
 ORDER BY e.worker_id
 LIMIT 1000;

-- name: executor_groups
-- Groups of executors, and how many of each are not off.
SELECT g.name, g.labels, g.claims,
       (SELECT count(*) FROM scheduler.executors e WHERE e.executor_group = g.name AND e.state <> 'off')::integer AS executors
  FROM scheduler.executor_groups g
 ORDER BY g.name
 LIMIT 1000;

-- name: isolated_jobs
-- Jobs that demand isolated executors while none takes work. Definitions are read only then.
SELECT count(*)::integer AS jobs, coalesce(string_agg(name, ', ' ORDER BY name) FILTER (WHERE place <= 5), '') AS names
  FROM (SELECT d.name, row_number() OVER (ORDER BY d.name) AS place
          FROM scheduler.job_definitions d
         WHERE d.enabled
           AND d.deleted_at IS NULL
           AND d.spec ->> 'isolation' = 'isolated'
           AND NOT EXISTS (SELECT 1 FROM scheduler.executors WHERE state = 'on' AND isolation = 'isolated')) AS waiting;

-- name: work
-- Events that wait and schedules that failed.
SELECT (SELECT count(*) FROM (SELECT 1 FROM scheduler.events LIMIT 10000) AS e)::integer AS events,
       coalesce((SELECT extract(epoch FROM now() - created_at) FROM scheduler.events ORDER BY id LIMIT 1), 0)::double precision
           AS oldest_event_age,
       (SELECT count(*) FROM scheduler.schedules WHERE status = 'failed')::integer AS failed_schedules,
       coalesce((SELECT string_agg(name || ': ' || last_error, '; ' ORDER BY name)
                   FROM (SELECT name, last_error FROM scheduler.schedules WHERE status = 'failed' ORDER BY name LIMIT 5) AS few), '')
           AS failed_names;
