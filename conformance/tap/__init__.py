"""The tap: a recording reverse proxy. Bytes pass at once; what passed is judged beside the way."""
