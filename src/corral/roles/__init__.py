"""Composition roots: each role reads its settings, opens its resources and wires its components."""
