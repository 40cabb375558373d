-- name: note
-- Freezes and thaws of attempts that an incarnation holds, each turn with its event. A turn that is known counts once, so that a heartbeat may
-- come twice. The live run has the day of its attempt: without it every partition would be read.
WITH input AS MATERIALIZED (
    SELECT i.run_id, i.token, i.turns, i.seconds, i.turned_at
      FROM jsonb_to_recordset(%(notes)s::jsonb) AS i(run_id bigint, token bigint, turns integer, seconds double precision, turned_at timestamptz)
), held AS MATERIALIZED (
    SELECT i.*, r.log_day
      FROM input i JOIN scheduler.runs_live r ON r.id = i.run_id AND r.token = i.token AND r.assigned_incarnation = %(incarnation)s::uuid
), locked AS MATERIALIZED (
    SELECT h.*, a.freeze_turns AS known
      FROM held h JOIN scheduler.job_attempts a ON a.run_id = h.run_id AND a.token = h.token AND a.log_day = h.log_day
     WHERE a.incarnation = %(incarnation)s::uuid AND a.finished_at IS NULL
       AND (h.turns > a.freeze_turns OR h.turns = a.freeze_turns AND h.seconds > a.frozen_seconds)
     ORDER BY a.run_id, a.token
       FOR NO KEY UPDATE OF a
), moved AS (
    UPDATE scheduler.job_attempts a
       SET freeze_turns = l.turns, frozen_seconds = GREATEST(a.frozen_seconds, l.seconds)
      FROM locked l
     WHERE a.run_id = l.run_id AND a.token = l.token AND a.log_day = l.log_day AND a.freeze_turns = l.known
    RETURNING a.run_id, a.token, l.known, l.turns, l.seconds, l.turned_at
)
INSERT INTO scheduler.job_events (at, run_id, type, message, metadata)
SELECT now() + make_interval(secs => turn * 1e-6), m.run_id,
       CASE WHEN mod(turn, 2) = 1 THEN 'frozen' ELSE 'thawed' END,
       CASE WHEN mod(turn, 2) = 1 THEN 'the lease of its executor was not renewed in time; the processes are stopped'
            ELSE 'the lease of its executor was renewed; frozen for ' || round(m.seconds::numeric, 1) || ' s in all' END,
       jsonb_build_object('token', m.token::text, 'frozen_seconds', round(m.seconds::numeric, 3),
                          'turned_at', CASE WHEN turn = m.turns THEN m.turned_at END)
  FROM moved m CROSS JOIN LATERAL generate_series(m.known + 1, m.turns) AS turn
