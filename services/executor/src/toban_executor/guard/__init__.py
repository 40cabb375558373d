"""The guard: small processes that are the parents of all jobs and hold the lease's deadline by themselves.

One master, started before gRPC is loaded, forks one keeper a slot. A keeper runs one attempt at a time, so everything below
it belongs to that attempt: as child subreaper it inherits every orphan, also one that called setsid or forked twice, and
``waitpid`` saying "no children" proves that the whole tree is gone. Standard library only, one thread, no asyncio.

    executor ──socketpair a slot──▶ keeper ──posix_spawn──▶ job ──▶ its children
        └─────control pipe────────▶ master (parent and subreaper of the keepers)

When the executor dies its ends of the sockets close: each keeper kills its tree at once, and the master writes down that
everything is gone, which lets the next incarnation attest it.
"""
