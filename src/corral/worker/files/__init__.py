"""Files of this node whose names come from outside: areas, uploads, object storage."""
