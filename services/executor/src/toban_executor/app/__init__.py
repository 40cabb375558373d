"""Use cases of one incarnation: recover, register, carry out orders, keep output and outcomes, shut down."""
