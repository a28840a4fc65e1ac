"""What commands share to print: tables, progress, and the state of replicas."""
