"""Commands about the server as a whole: INFO, CONFIG, CLUSTER, SLOWLOG, LATENCY, ROLE, TIME, DEBUG."""
