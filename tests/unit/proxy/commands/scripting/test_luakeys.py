"""Which scripts show that they use only their declared keys: those in common use do, and scripts that may use others do
not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.commands.scripting import luakeys
from proxy.commands.scripting.luakeys import LONGEST, keeps_to_keys

COMMON = {
    "compare and delete": """
        if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end
    """,
    "a lock's release, as of redis-py": """
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    """,
    "a lock's extension, as of redis-py": """
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == "0" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    """,
    "a lock over several keys": """
        local count = 0
        for i, key in ipairs(KEYS) do
            -- Only remove the lock if it is ours.
            if redis.call("get", key) == ARGV[1] then
                redis.pcall("del", key)
                count = count + 1
            end
        end
        return count
    """,
    "a reentrant lock, as of Redisson": """
        if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
            redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil;
        end; return redis.call('pttl', KEYS[1]);
    """,
    "its release": """
        if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end;
        local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
        if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0;
        else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;
    """,
    "a fixed window": """
        local current = redis.call("INCR", KEYS[1])
        if tonumber(current) == 1 then redis.call("EXPIRE", KEYS[1], ARGV[1]) end
        return {current, redis.call("TTL", KEYS[1])}
    """,
    "a sliding window": """
        local key, now, window, limit = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
        redis.call('ZREMRANGEBYSCORE', key, 0, now - window)
        local amount = redis.call('ZCARD', key)
        if amount < limit then
            redis.call('ZADD', key, now, now .. ':' .. math.random())
            redis.call('PEXPIRE', key, window)
            return 1
        end
        return 0
    """,
    "a token bucket, as of Spring's gateway": """
        redis.replicate_commands()
        local tokens_key = KEYS[1]
        local timestamp_key = KEYS[2]
        local rate = tonumber(ARGV[1])
        local capacity = tonumber(ARGV[2])
        local now = redis.call('TIME')[1]
        local requested = tonumber(ARGV[4])
        local fill_time = capacity / rate
        local ttl = math.floor(fill_time * 2)
        local last_tokens = tonumber(redis.call("get", tokens_key))
        if last_tokens == nil then
          last_tokens = capacity
        end
        local last_refreshed = tonumber(redis.call("get", timestamp_key))
        if last_refreshed == nil then last_refreshed = 0 end
        local delta = math.max(0, now - last_refreshed)
        local filled_tokens = math.min(capacity, last_tokens + (delta * rate))
        local allowed = filled_tokens >= requested
        local new_tokens = filled_tokens
        local allowed_num = 0
        if allowed then
          new_tokens = filled_tokens - requested
          allowed_num = 1
        end
        if ttl > 0 then
          redis.call("setex", tokens_key, ttl, new_tokens)
          redis.call("setex", timestamp_key, ttl, now)
        end
        return { allowed_num, new_tokens }
    """,
    "a job taken off a sorted set, as of Sidekiq": """
        local key, now = KEYS[1], ARGV[1]
        local jobs = redis.call("zrange", key, "-inf", now, "byscore", "limit", 0, 1)
        if jobs[1] then
          redis.call("zrem", key, jobs[1])
          return jobs[1]
        end
    """,
    "a job reserved, as of Laravel": """
        local job = redis.call('lpop', KEYS[1])
        local reserved = false
        if(job ~= false) then
            reserved = cjson.decode(job)
            reserved['attempts'] = reserved['attempts'] + 1
            reserved = cjson.encode(reserved)
            redis.call('zadd', KEYS[2], ARGV[1], reserved)
            redis.call('lpop', KEYS[3])
        end
        return {job, reserved}
    """,
    "delayed jobs that are due, as of Laravel": """
        local val = redis.call('zrangebyscore', KEYS[1], '-inf', ARGV[1], 'limit', 0, ARGV[2])
        if(next(val) ~= nil) then
            redis.call('zremrangebyrank', KEYS[1], 0, #val - 1)
            for i = 1, #val, 100 do
                redis.call('rpush', KEYS[2], unpack(val, i, math.min(i+99, #val)))
                for j = i, math.min(i+99, #val) do
                    redis.call('rpush', KEYS[3], 1)
                end
            end
        end
        return val
    """,
    "a job enqueued once, as of asynq": """
        if redis.call("EXISTS", KEYS[1]) == 1 then
            return 0
        end
        redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "pending", "pending_since", ARGV[3])
        redis.call("LPUSH", KEYS[2], ARGV[2])
        return 1
    """,
    "a short name for redis.call": "local rcall, key = redis.call, KEYS[1] return rcall('HGETALL', key)",
    "all keys at once": "local found = redis.call('MGET', unpack(KEYS)) redis.call('DEL', unpack(KEYS)) return found",
    "keys by numbers": "for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i]) end return #KEYS",
    "keys in pairs": "redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])",
    "names of all keys": "local a, b = unpack(KEYS) return redis.call('RENAME', a, b)",
    "a name made first": """
        local key; if ARGV[1] then key = KEYS[1] else key = KEYS[2] end return redis.call('GET', key)
    """,
    "a subcommand": "return redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '$', 'MKSTREAM')",
    "a shebang": "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])",
    "no key at all": "return {ARGV[1], redis.sha1hex('x'), cjson.encode({1, 2})}",
    "errors": "return redis.error_reply('ERR ' .. KEYS[1] .. [[ is [not] there]]) --[==[ SELECT ]] ]==]",
    "a function": "local function double(x) return x * 2 end return redis.call('SET', KEYS[1], double(ARGV[1]))",
}
OTHERS = {
    "another database": "redis.call('SELECT', 1) return redis.call('INCR', KEYS[1])",
    "another database, not written out": "redis.call(ARGV[1], 1) return redis.call('INCR', KEYS[1])",
    "another database, put together": "redis.call('SEL' .. 'ECT', 1) return redis.call('INCR', KEYS[1])",
    "another database, in escapes": r"redis.call('\83ELECT', 1)",
    "a copy to another database": "redis.call('COPY', KEYS[1], KEYS[2], 'DB', 1)",
    "a key of the same tag": "return redis.call('INCR', KEYS[1] .. ':count')",
    "a key of the same tag, with a name": "local key = KEYS[1] .. ':count' return redis.call('INCR', key)",
    "a job's key, as of BullMQ": """
        local rcall = redis.call
        local jobId = rcall("INCR", KEYS[4])
        local jobIdKey = ARGV[1] .. jobId
        rcall("HMSET", jobIdKey, "name", ARGV[3])
    """,
    "a key in quotes": "return redis.call('GET', '{a}b')",
    "a key as an argument": "return redis.call('GET', ARGV[1])",
    "a key that was stored": "return redis.call('GET', redis.call('GET', KEYS[1]))",
    "keys in pairs, one of them not": "redis.call('MSET', KEYS[1], ARGV[1], ARGV[2], ARGV[2])",
    "keys in pairs, then more": "redis.call('MSET', KEYS[1], unpack(ARGV))",
    "several values in the place of one": "local function f() return 'AND', 'x', 'y' end redis.call('BITOP', f())",
    "several values as the last": "redis.call('RENAME', unpack(ARGV))",
    "one key of two": "redis.call('RENAME', KEYS[1], ARGV[1])",
    "a pattern": "return redis.call('SORT', KEYS[1], 'BY', '{a}w*')",
    "all keys": "return redis.call('KEYS', '*')",
    "everything": "redis.call('FLUSHALL')",
    "a command of a module": "redis.call('JSON.GET', KEYS[1])",
    "a subcommand not written out": "redis.call('OBJECT', ARGV[1], KEYS[1])",
    "a parameter": "local function get(key) return redis.call('GET', key) end return get(KEYS[1]) .. get('x')",
    "a parameter that hides a name": "local key = KEYS[1] local f = function(key) redis.call('DEL', key) end f('x')",
    "a name that changes": "local key = KEYS[1] key = 'x' redis.call('DEL', key)",
    "a name that changes with others": "local key, a = KEYS[1] a, key = 1, 'x' redis.call('DEL', key)",
    "a name that changes in a loop": "local key = KEYS[1] for i, key in ipairs(ARGV) do redis.call('DEL', key) end",
    "a name of a function": "local key = KEYS[1] local function key() end redis.call('DEL', key)",
    "another element": "KEYS[1] = 'x' return redis.call('DEL', KEYS[1])",
    "another element among others": "local a, b = 1 a, KEYS[1], b = 1, 'x', 2 return redis.call('DEL', KEYS[1])",
    "another element by a function": "table.insert(KEYS, 'x') return redis.call('DEL', KEYS[#KEYS])",
    "another element by a name": "local k = KEYS k[1] = 'x' return redis.call('DEL', KEYS[1])",
    "another element by what goes through": "local f, k = ipairs(KEYS) k[1] = 'x' return redis.call('DEL', KEYS[1])",
    "another element by a table": "local t = {KEYS} t[1][1] = 'x' return redis.call('DEL', KEYS[1])",
    "other keys": "local KEYS = {'x'} return redis.call('DEL', KEYS[1])",
    "other unpacking": "local unpack = function() return 'x' end return redis.call('DEL', unpack(KEYS))",
    "other going through": """
        local function ipairs(t) return next, ARGV end for i, k in ipairs(KEYS) do redis.call('DEL', k) end
    """,
    "redis by another name": "local r = redis r.call('SELECT', 1)",
    "redis by its field": "redis['call']('SELECT', 1)",
    "redis by all globals": "_G['redis'].call('SELECT', 1)",
    "redis by the environment": "getfenv(0).redis.call('SELECT', 1)",
    "what others' strings do": "getmetatable('').__index = function(s) return redis.call('GET', KEYS[1]) end",
    "redis by Valkey's name": "server.call('SELECT', 1)",
    "code in a string": "loadstring([[redis.call('SELECT', 1)]])()",
    "a call handed on": "return pcall(redis.call, 'SELECT', 1)",
    "a call in a table": "local t = {redis.call} t[1]('SELECT', 1)",
    "a call in a field": "local t = {} t.call = redis.call t.call('SELECT', 1)",
    "a call given back": "local function f() return redis.call end f()('SELECT', 1)",
    "a call or another": "local f = redis.call or redis.pcall f('SELECT', 1)",
    "a call in parentheses": "(redis.call)('SELECT', 1)",
    "a short name handed on": "local f = redis.call pcall(f, 'SELECT', 1)",
    "a short name for something else, too": "local f = redis.call f = ARGV f('SELECT', 1)",
    "a short name without parentheses": "local f = redis.call f'KEYS'",
    "a call without parentheses": "redis.call'FLUSHALL'",
    "the parameter that a method does not write": """
        local self, t = KEYS[1], {} function t:get() return redis.call('GET', self) end return t.get('other')
    """,
    "a name that stands for something outside": "do local _VERSION = KEYS[1] end return redis.call('GET', _VERSION)",
    "behind what only looks like a comment": "--\rredis.call('SELECT', 1)",
    "behind a comment": "--[[ ]] redis.call('SELECT', 1)",
    "behind a comment of one line": "--[=x\nredis.call('SELECT', 1)",
    "between strings": """local a = 'x\\'' redis.call('SELECT', 1) local b = 'y'""",
    "between long strings": "local a = [=[ ]] ]=] redis.call('SELECT', 1) local b = [=[ ]=]",
    "no Lua": "this is no Lua",
    "nothing that ends": "if KEYS[1] then redis.call('DEL', KEYS[1])",
    "nested too deep": "return " + "(" * 100 + "1" + ")" * 100,
    "too long": "return 1 --" + "x" * LONGEST,
}


@pytest.mark.parametrize("script", COMMON.values(), ids=COMMON)
def test_scripts_in_common_use(script: str) -> None:
    assert keeps_to_keys(script.encode())


@pytest.mark.parametrize("script", OTHERS.values(), ids=OTHERS)
def test_absent_first_what_may_touch_other_keys(script: str) -> None:
    assert not keeps_to_keys(script.encode())


WORDS = (
    "redis.call redis KEYS KEYS[1] ( ) 'SELECT' 'GET' , = local x function end return { } [ ] unpack ipairs for in do"
)
PIECES = st.sampled_from([*WORDS.split(), ".", ":", "1", "--", "[[", "]]", "..", "or", "\n"])


@given(st.lists(PIECES, max_size=30))
def test_any_text(pieces: list[str]) -> None:
    """The answer for any text is yes or no, and nothing else."""
    assert keeps_to_keys(" ".join(pieces).encode()) in (True, False)


@given(st.binary(max_size=200))
def test_any_bytes(script: bytes) -> None:
    assert keeps_to_keys(script) in (True, False)


@pytest.mark.parametrize("opening", ["[", "[=", "--[[", "x=[[ ", "[=[", "--[==["])
def test_the_end_of_what_does_not_end_is_looked_for_once(opening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each look at a bracket goes to the end of the text.
    places: list[int] = []
    tokens = luakeys.TOKENS

    class Counting:
        def match(self, text: str, place: int) -> re.Match[str] | None:
            places.append(place)
            return tokens.match(text, place)

    monkeypatch.setattr(luakeys, "TOKENS", Counting())
    assert not keeps_to_keys((opening * LONGEST).encode()[:LONGEST])
    assert 1 <= len(places) <= 4


@pytest.mark.parametrize(
    "text", ["local a = {} return a[a[1]]", "return {[ [[c]] ]=1}", "return -1 - -1 -- - [", "return [[--]] --[[ [ ]]"]
)
def test_brackets_and_signs_that_are_no_opening_are_symbols(text: str) -> None:
    assert keeps_to_keys(text.encode())
