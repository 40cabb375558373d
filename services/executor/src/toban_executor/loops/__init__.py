"""What the executor repeats: heartbeats and shipping of logs, and the run of one incarnation around them."""
