# A topom that knows nothing yet.
SLOTFERRY_TOPOM_LISTEN=127.0.0.1:8380 slotferry topom    # runs until Ctrl-C
slotferry context set mine --topom http://127.0.0.1:8380 < slotferry-data/token
