"""Leaving Codis: reads the output of ``codis-admin --config-dump``, and brings it into topom."""
