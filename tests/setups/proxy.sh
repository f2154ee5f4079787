# A proxy of that topom.
SLOTFERRY_PROXY_LISTEN=127.0.0.1:6380 SLOTFERRY_PROXY_METRICS=127.0.0.1:6381 SLOTFERRY_PROXY_TOPOM=http://127.0.0.1:8380 SLOTFERRY_PROXY_TOKEN=$(cat slotferry-data/token) slotferry proxy    # runs until Ctrl-C
