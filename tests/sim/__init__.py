"""The whole of replication under virtual time: real controllers, decisions and SQLite; machines, links and faults are
simulated. One seed decides everything."""
