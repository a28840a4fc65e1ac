"""Both databases, one by one."""

from harness.databases import kind, make_rig, rig, unopened

__all__ = ["kind", "make_rig", "rig", "unopened"]
