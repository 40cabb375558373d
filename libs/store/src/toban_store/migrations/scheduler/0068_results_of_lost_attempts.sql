-- migrate:up
-- The result of an attempt that was lost counts while nothing else of its run has been sent: the run goes back to that attempt first.
INSERT INTO scheduler.run_transitions (from_state, to_state) VALUES ('PENDING', 'ORPHANED');

-- migrate:down
DELETE FROM scheduler.run_transitions WHERE from_state = 'PENDING' AND to_state = 'ORPHANED';
