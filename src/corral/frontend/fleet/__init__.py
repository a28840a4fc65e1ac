"""What people ask of the whole fleet, and how far it is: operations, backends on nodes, policies."""
