"""The guard: small processes that are the parents of all jobs and hold the lease's deadline by themselves.

The guard supervisor, started before gRPC is loaded, forks one slot supervisor a slot. That runs one attempt at a time, so everything below
it belongs to that attempt: as child subreaper it inherits every orphan, also one that called setsid or forked twice, and ``waitpid`` without
any child proves that the tree is empty. No third-party package (the domain and the core of fencing are free of them), one thread, no asyncio.
What they do is decided by pure functions: `decide/guard.py` for a slot, `decide/guard_set.py` for all of them.

    executor ──socketpair a slot──▶ slot supervisor ──posix_spawn──▶ job ──▶ its children
        └─────control pipe────────▶ guard supervisor (parent and subreaper of the slot supervisors)

When the executor dies its ends of the sockets close: each slot supervisor kills its tree at once, and the guard supervisor records that nothing
is left, which lets the next incarnation attest it.
"""
