"""Wires `corral up`: a bus, a frontend and a worker on one machine."""
