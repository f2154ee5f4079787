# Three groups of one server each, and a proxy.
slotferry local --groups 3 --port 6380    # runs until Ctrl-C
slotferry context use local
