"""What a coordinator answers: executors, other coordinators, operators."""
