"""What the executor keeps doing: heartbeats, reports, log shipping, and carrying out what `decide` says."""
