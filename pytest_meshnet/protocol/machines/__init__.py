"""The two sans-IO machines of the protocol: no sockets, no threads, no locks, no clocks."""
