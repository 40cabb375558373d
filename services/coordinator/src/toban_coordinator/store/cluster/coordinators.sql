-- name: draw_worker_id
-- A worker id that no process ever had.
SELECT nextval('scheduler.worker_id_seq') AS worker_id;

-- name: register
-- A new incarnation of a coordinator; once more is the same.
INSERT INTO scheduler.coordinators (incarnation, worker_id, node_id, address, pid, version)
VALUES (%(incarnation)s::uuid, %(worker_id)s::bigint, %(node_id)s::text, %(address)s::text, %(pid)s::integer, %(version)s::text)
ON CONFLICT (incarnation) DO NOTHING;

-- name: touch
-- Still there, with this role: also one that slept until its row was forgotten. The answer: coordinators seen within the last seconds, as they
-- were before, each with the version of the settings.
WITH touched AS (
    INSERT INTO scheduler.coordinators AS c (incarnation, worker_id, node_id, address, pid, version, role, clock_skew_seconds,
                                             certificate_not_after)
    VALUES (%(incarnation)s::uuid, %(worker_id)s::bigint, %(node_id)s::text, %(address)s::text, %(pid)s::integer, %(version)s::text,
            %(role)s::text, %(skew)s::double precision, %(certificate)s::timestamptz)
    ON CONFLICT (incarnation) DO UPDATE
       SET last_seen_at = now(), role = EXCLUDED.role, clock_skew_seconds = EXCLUDED.clock_skew_seconds,
           certificate_not_after = EXCLUDED.certificate_not_after
     WHERE c.status = 'ok'
)
SELECT incarnation::text AS incarnation, worker_id, node_id, address, role, clock_skew_seconds,
       extract(epoch FROM now() - last_seen_at)::double precision AS age_seconds,
       (SELECT coalesce(sum(s.version), 0) FROM scheduler.settings s)::integer AS settings_version
  FROM scheduler.coordinators
 WHERE status = 'ok' AND last_seen_at > now() - make_interval(secs => %(seconds)s::double precision)
 ORDER BY worker_id;

-- name: stopped
-- ok -> stopped: it ended in order.
UPDATE scheduler.coordinators SET status = 'stopped', role = 'standby', last_seen_at = now() WHERE incarnation = %(incarnation)s::uuid;
