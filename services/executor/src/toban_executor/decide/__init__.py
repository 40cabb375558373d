"""What the executor decides: pure, without clocks and without I/O. Loops, server and adapters carry the effects."""
