"""Both databases, one by one, migrated, with a clock that tests move."""

from harness.databases import kind, make_rig, rig, stores, unopened

__all__ = ["kind", "make_rig", "rig", "stores", "unopened"]
