# A topom with one group of a master and a replica, which is whole.
redis-server --port 7001 --save '' --repl-diskless-sync-delay 0    # runs until Ctrl-C
redis-server --port 7002 --save ''    # runs until Ctrl-C
SLOTFERRY_TOPOM_LISTEN=127.0.0.1:8380 slotferry topom    # runs until Ctrl-C
slotferry context set mine --topom http://127.0.0.1:8380 < slotferry-data/token
slotferry group add 1 127.0.0.1:7001
slotferry server add 1 127.0.0.1:7002
slotferry slot assign 0-1023 --to 1
until slotferry server show 127.0.0.1:7002 --output json | grep -q '"joining": false.*"not_whole": null'; do sleep 0.1; done
