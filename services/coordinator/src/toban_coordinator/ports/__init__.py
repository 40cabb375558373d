"""What the loops and servers of a coordinator need from outside, as protocols and plain values."""
