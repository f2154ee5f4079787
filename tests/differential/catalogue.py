"""Every form of every command that is tried, by family, in the notation of :mod:`tests.differential.grammar`.

Left out are commands that the proxy refuses (``docs/commands.md`` says why), commands about one server, and commands
whose effect depends on chance or on the clock, if they would make the two sides' data differ for good.
"""

STRINGS = """
SET <string> <value>
SET <string> <value> [NX|XX] [GET] [EX <ttl>|PX <ttl-ms>|EXAT <future>|PXAT <future-ms>|KEEPTTL]
GET <string>
GETSET <string> <value>
GETDEL <string>
GETEX <string> [EX <ttl>|PX <ttl-ms>|EXAT <future>|PXAT <future-ms>|PERSIST]
SETNX <string> <value>
SETEX <string> <ttl> <value>
PSETEX <string> <ttl-ms> <value>
APPEND <string> <value>
STRLEN <string>
SETRANGE <string> <offset> <value>
GETRANGE <string> <index> <index>
SUBSTR <string> <index> <index>
INCR <string>
DECR <string>
INCRBY <string> <int>
DECRBY <string> <int>
INCRBYFLOAT <string> <float>
MGET <any>...
MSET (<any> <value>)...
MSETNX (<string> <value>)...
LCS <string> <string> [LEN] [IDX] [MINMATCHLEN <int>] [WITHMATCHLEN]
"""
BITMAPS = """
SETBIT <bitmap> <offset> <bit>
GETBIT <bitmap> <offset>
BITCOUNT <bitmap> [<index> <index> [BYTE|BIT]]
BITPOS <bitmap> <bit> [<index> [<index> [BYTE|BIT]]]
BITOP (AND|OR|XOR) <bitmap> <bitmap>...
BITOP NOT <bitmap> <bitmap>
BITFIELD <bitmap> (GET <bits> <place>|[OVERFLOW (WRAP|SAT|FAIL)] (SET|INCRBY) <bits> <place> <int>)...
BITFIELD_RO <bitmap> (GET <bits> <place>)...
"""
HASHES = """
HSET <hash> (<field> <value>)...
HSET <hash> (<field> <int>)...
HSET <hash> <field->
HMSET <hash> (<field> <value>)...
HSETNX <hash> <field> <value>
HGET <hash> <field>
HMGET <hash> <field>...
HGETALL <hash>
HKEYS <hash>
HVALS <hash>
HLEN <hash>
HEXISTS <hash> <field>
HSTRLEN <hash> <field>
HDEL <hash> <field>...
HINCRBY <hash> <field> <int>
HINCRBYFLOAT <hash> <field> <float>
HRANDFIELD <hash> [<count> [WITHVALUES]]
"""
LISTS = """
RPUSH <list> <member>...
LPUSH <list> <member>...
RPUSH <list> <member->
RPUSHX <list> <member>...
LPUSHX <list> <member>...
LPOP <list> [<count>]
RPOP <list> [<count>]
LLEN <list>
LRANGE <list> <index> <index>
LINDEX <list> <index>
LSET <list> <index> <value>
LINSERT <list> (BEFORE|AFTER) <member> <value>
LREM <list> <count> <member>
LTRIM <list> <index> <index>
LPOS <list> <member> [RANK <int>] [COUNT <count>] [MAXLEN <count>]
LMOVE <list> <list> (LEFT|RIGHT) (LEFT|RIGHT)
RPOPLPUSH <list> <list>
LMPOP #<list> (LEFT|RIGHT) [COUNT <positive>]
"""
SETS = """
SADD <set> <member>...
SADD <set> <int>...
SADD <set> <member->
SREM <set> <member>...
SCARD <set>
SISMEMBER <set> <member>
SMISMEMBER <set> <member>...
SMEMBERS <set>
SMOVE <set> <set> <member>
SRANDMEMBER <set> [<count>]
SPOP <set> <all>
SINTER <set>...
SUNION <set>...
SDIFF <set>...
SINTERSTORE <set> <set>...
SUNIONSTORE <set> <set>...
SDIFFSTORE <set> <set>...
SINTERCARD #<set> [LIMIT <count>]
SINTER <any-set>...
SUNION <any-set>...
SDIFF <any-set>...
SINTERCARD #<any-set> [LIMIT <count>]
"""
SORTED_SETS = """
ZADD <zset> [NX|XX] [GT|LT] [CH] (<float> <member>)...
ZADD <zset> INCR <float> <member>
ZADD <zset> (<int> <member>)...
ZINCRBY <zset> <float> <member>
ZCARD <zset>
ZCOUNT <zset> <range> <range>
ZLEXCOUNT <zset> <lex> <lex>
ZSCORE <zset> <member>
ZMSCORE <zset> <member>...
ZRANK <zset> <member>
ZREVRANK <zset> <member>
ZRANGE <zset> <index> <index> [REV] [WITHSCORES]
ZRANGE <zset> <range> <range> BYSCORE [REV] [LIMIT <index> <count>] [WITHSCORES]
ZRANGE <zset> <lex> <lex> BYLEX [REV] [LIMIT <index> <count>]
ZREVRANGE <zset> <index> <index> [WITHSCORES]
ZRANGEBYSCORE <zset> <range> <range> [WITHSCORES] [LIMIT <index> <count>]
ZREVRANGEBYSCORE <zset> <range> <range> [WITHSCORES] [LIMIT <index> <count>]
ZRANGEBYLEX <zset> <lex> <lex> [LIMIT <index> <count>]
ZREVRANGEBYLEX <zset> <lex> <lex> [LIMIT <index> <count>]
ZRANGESTORE <zset> <zset> <range> <range> [BYSCORE [REV] [LIMIT <index> <count>]]
ZREM <zset> <member>...
ZREMRANGEBYRANK <zset> <index> <index>
ZREMRANGEBYSCORE <zset> <range> <range>
ZREMRANGEBYLEX <zset> <lex> <lex>
ZPOPMIN <zset> [<count>]
ZPOPMAX <zset> [<count>]
ZMPOP #<zset> (MIN|MAX) [COUNT <positive>]
ZRANDMEMBER <zset> [<count> [WITHSCORES]]
ZUNION #<zset> [WEIGHTS @float] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
ZINTER #<zset> [WEIGHTS @float] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
ZDIFF #<zset> [WITHSCORES]
ZUNIONSTORE <zset> #<zset> [WEIGHTS @float] [AGGREGATE (SUM|MIN|MAX)]
ZINTERSTORE <zset> #<zset> [WEIGHTS @float] [AGGREGATE (SUM|MIN|MAX)]
ZDIFFSTORE <zset> #<zset>
ZINTERCARD #<zset> [LIMIT <count>]
ZUNION #<any-zset> [WEIGHTS @float] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
ZINTER #<any-zset> [WEIGHTS @float] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
ZDIFF #<any-zset> [WITHSCORES]
ZINTERCARD #<any-zset> [LIMIT <count>]
"""
STREAMS = """
XADD <stream> [NOMKSTREAM] [(MAXLEN|MINID) [=] <count>] <entry> (<field> <value>)...
XADD <stream> <entry> (<field> <value>)...
XLEN <stream>
XRANGE <stream> <id-range> <id-range> [COUNT <count>]
XREVRANGE <stream> <id-range> <id-range> [COUNT <count>]
XDEL <stream> <id>...
XTRIM <stream> (MAXLEN|MINID) [=] <count>
XSETID <stream> <id>
XREAD [COUNT <count>] STREAMS <stream> <id>
XREAD [COUNT <count>] STREAMS <stream> <stream> <id> <id>
XGROUP CREATE <stream> <group> (<id>|$) [MKSTREAM]
XGROUP SETID <stream> <group> <id>
XGROUP DESTROY <stream> <group>
XGROUP CREATECONSUMER <stream> <group> <consumer>
XGROUP DELCONSUMER <stream> <group> <consumer>
XREADGROUP GROUP <group> <consumer> [COUNT <count>] [NOACK] STREAMS <stream> (>|<id>)
XREADGROUP GROUP <group> <consumer> STREAMS <stream> <stream> (>|<id>) (>|<id>)
XACK <stream> <group> <id>...
XPENDING <stream> <group> [<id-range> <id-range> <count> [<consumer>]]
XCLAIM <stream> <group> <consumer> 0 <id>... [FORCE] [JUSTID]
XAUTOCLAIM <stream> <group> <consumer> 0 <id> [COUNT <positive>] [JUSTID]
XINFO STREAM <stream>
XINFO GROUPS <stream>
XINFO CONSUMERS <stream> <group>
"""
HYPERLOGLOGS = """
PFADD <hll> <member>...
PFADD <hll> <member->
PFCOUNT <hll>...
PFMERGE <hll> <hll>...
GET <hll>
"""
GEO = """
GEOADD <geo> [NX|XX] [CH] (<longitude> <latitude> <place-name>)...
GEODIST <geo> <place-name> <place-name> [<unit>]
GEOHASH <geo> <place-name>...
GEOPOS <geo> <place-name>...
GEOSEARCH <geo> FROMMEMBER <place-name> BYRADIUS <distance> <unit> (ASC|DESC) [COUNT <positive> [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
GEOSEARCH <geo> FROMLONLAT <longitude> <latitude> BYBOX <distance> <distance> <unit> ASC [WITHDIST]
GEOSEARCHSTORE <geo> <geo> FROMMEMBER <place-name> BYRADIUS <distance> <unit> ASC [COUNT <positive>] [STOREDIST]
GEORADIUS <geo> <longitude> <latitude> <distance> <unit> ASC [WITHDIST] [STORE <zset>]
GEORADIUSBYMEMBER <geo> <place-name> <distance> <unit> ASC [WITHCOORD] [STOREDIST <zset>]
GEORADIUS_RO <geo> <longitude> <latitude> <distance> <unit> ASC
GEORADIUSBYMEMBER_RO <geo> <place-name> <distance> <unit> ASC
"""  # noqa: E501
KEYS = """
DEL <any>...
UNLINK <any>...
EXISTS <any>...
TOUCH <any>...
TYPE <key>
RENAME <key> <key>
RENAMENX <key> <key>
COPY <key> <key> [DB <database>] [REPLACE]
MOVE <key> <database>
EXPIRE <key> <ttl> [NX|XX|GT|LT]
PEXPIRE <key> <ttl-ms> [NX|XX|GT|LT]
EXPIREAT <key> <future> [NX|XX|GT|LT]
PEXPIREAT <key> <future-ms> [NX|XX|GT|LT]
TTL <key>
PTTL <key>
EXPIRETIME <key>
PEXPIRETIME <key>
PERSIST <key>
OBJECT (ENCODING|REFCOUNT|IDLETIME|FREQ) <key>
DUMP <key>
RESTORE <key> <ttl-ms> <value> [REPLACE]
SORT (<list>|<set>|<zset>) [LIMIT <index> <count>] [ASC|DESC] ALPHA [STORE <list>]
SORT (<list>|<set>|<zset>) [BY nosort] [GET #] [ASC|DESC]
SORT (<list>|<set>|<zset>) BY <named> [LIMIT <index> <count>] [GET <named>] [GET #] [ASC|DESC] [STORE <list>]
SORT (<list>|<zset>) [BY <named>] (GET <named>)... ALPHA [STORE <list>]
SORT_RO (<list>|<zset>) BY (nosort|<named>) [GET <named>] [ALPHA]
SORT_RO (<list>|<zset>) [LIMIT <index> <count>] [ALPHA] [DESC]
MEMORY USAGE <key> [SAMPLES <count>]
HSCAN <hash> <cursor> [MATCH <pattern>] [COUNT <all>]
SSCAN <set> <cursor> [MATCH <pattern>] [COUNT <all>]
ZSCAN <zset> <cursor> [MATCH <pattern>] [COUNT <all>]
"""
KEYSPACE = """
DBSIZE
KEYS <pattern>
KEYS *
RANDOMKEY
FLUSHDB [ASYNC|SYNC]
FLUSHALL [ASYNC|SYNC]
FLUSHDB <nothing>
"""
SESSION = """
PING
PING <value>
PING <value> <value>
ECHO <value>
SELECT <database>
HELLO
HELLO (2|3)
HELLO (2|3) SETNAME (me|you)
HELLO (1|4|x)
HELLO 3 AUTH default <value>
AUTH <value>
AUTH default <value>
CLIENT SETNAME (me|you)
CLIENT GETNAME
CLIENT ID
CLIENT NO-EVICT (on|off|x)
CLIENT REPLY (ON|OFF|SKIP|x)
CLIENT NOSUCH
TIME
LASTSAVE x
OBJECT HELP
RESET
READONLY x
WAIT <nothing> <nothing>
COMMAND GETKEYS GET <key>
COMMAND GETKEYS SORT <key> STORE <key>
COMMAND GETKEYS <no-command>
COMMAND INFO get set nosuch
COMMAND COUNT
COMMAND LIST FILTERBY PATTERN z*
(OBJECT|XGROUP|XINFO|SCRIPT|FUNCTION|PUBSUB|MEMORY|CLIENT|COMMAND|CONFIG|SLOWLOG|LATENCY) (HELP|NOSUCH)
(OBJECT|XGROUP|XINFO|SCRIPT|FUNCTION|PUBSUB|MEMORY|CLIENT|COMMAND|CONFIG|SLOWLOG|LATENCY|ACL)
CLIENT TRACKING OFF
CLIENT CACHING <nothing>
CLIENT UNBLOCK <int>
SLOWLOG LEN x
LATENCY RESET
CONFIG GET maxmemory
CLUSTER INFO
ACL WHOAMI
SUBSCRIBE
"""
SCRIPTS = """
EVAL <lua-get> 1 <string>
EVAL <lua-arguments> #<key> <value>...
EVAL <lua-values> 0
EVAL <lua-set> 1 <string> <value>
EVAL <lua-both> 2 <string> <string> <value>
EVAL <lua-incr> 1 <key>
EVAL <lua-broken> 0
EVAL <lua-get> <count> <key>
EVAL_RO <lua-get> 1 <string>
EVAL_RO <lua-set> 1 <string> <value>
SCRIPT LOAD (<lua-get>|<lua-values>|<lua-broken>)
SCRIPT EXISTS <sha> <sha>
SCRIPT FLUSH [SYNC|ASYNC|x]
EVALSHA <sha> 0
EVALSHA <sha> 1 <string>
EVALSHA <sha> #<key> <value>
EVALSHA_RO <sha> 1 <string>
FUNCTION LOAD [REPLACE] <library>
FUNCTION DELETE (mylib|nosuch)
FUNCTION FLUSH
FUNCTION LIST [LIBRARYNAME (my*|x)] [WITHCODE]
FCALL myget 1 <string>
FCALL myset 1 <string>
FCALL_RO myget 1 <string>
FCALL_RO myset 1 <string>
FCALL nosuch 0
FCALL myget <count> <key>
"""
PUBLISHING = """
PUBLISH <channel> <message>
SPUBLISH <channel> <message>
PUBSUB CHANNELS [<channels>]
PUBSUB NUMSUB <channel>...
PUBSUB NUMPAT
PUBSUB SHARDNUMSUB <channel>...
"""
SUBSCRIBING = """
SUBSCRIBE <channel>...
PSUBSCRIBE <channels>...
SSUBSCRIBE <channel>
UNSUBSCRIBE <channel>...
PUNSUBSCRIBE <channels>...
SUNSUBSCRIBE <channel>
UNSUBSCRIBE
PUNSUBSCRIBE
SUNSUBSCRIBE
PING
PING <value>
"""
WAITING = """
BLPOP <list>... TIMEOUT
BRPOP <list>... TIMEOUT
BLMOVE <list> <list> (LEFT|RIGHT) (LEFT|RIGHT) TIMEOUT
BRPOPLPUSH <list> <list> TIMEOUT
BLMPOP TIMEOUT #<list> (LEFT|RIGHT) [COUNT <positive>]
BZPOPMIN <zset>... TIMEOUT
BZPOPMAX <zset>... TIMEOUT
BZMPOP TIMEOUT #<zset> (MIN|MAX) [COUNT <positive>]
XREAD [COUNT <positive>] BLOCK MILLISECONDS STREAMS <stream> (<id>|$)
XREAD BLOCK MILLISECONDS STREAMS <stream> <stream> (<id>|$) (<id>|$)
XREADGROUP GROUP <group> <consumer> BLOCK MILLISECONDS STREAMS <stream> >
WAIT 0 MILLISECONDS
"""

FAMILIES = {
    "strings": STRINGS,
    "bitmaps": BITMAPS,
    "hashes": HASHES,
    "lists": LISTS,
    "sets": SETS,
    "sorted sets": SORTED_SETS,
    "streams": STREAMS,
    "hyperloglogs": HYPERLOGLOGS,
    "geo": GEO,
    "keys": KEYS,
    "keyspace": KEYSPACE,
    "session": SESSION,
    "scripts": SCRIPTS,
    "publishing": PUBLISHING,
    "subscribing": SUBSCRIBING,
}


def lines(text: str) -> list[str]:
    """The forms of a family."""
    return [line for line in text.splitlines() if line]
