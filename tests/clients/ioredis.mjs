// What an application does with ioredis, against the address given as host and port; prints what it saw as JSON.
// Nothing is judged here: the test that runs this knows what has to come out.

import Redis from "ioredis";

const [host, port] = [process.argv[2], Number(process.argv[3])];
const seen = {};
const opened = [];

function connect(options = {}) {
  const client = new Redis({ host, port, maxRetriesPerRequest: 0, retryStrategy: () => null, ...options });
  client.on("error", (error) => fail(error));
  opened.push(client);
  return client;
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

const messageOf = (error) => error.message;

async function types(client) {
  const set = await client.set("string", "välue", "EX", 1000);
  return {
    set,
    get: await client.get("string"),
    ttl: await client.ttl("string"),
    missing: await client.get("missing"),
    binary: (await client.set("binary", Buffer.from([0, 13, 10, 255])), [...(await client.getBuffer("binary"))]),
    hset: await client.hset("hash", { a: "1", b: "2" }),
    hgetall: await client.hgetall("hash"),
    hincrby: await client.hincrby("hash", "a", 41),
    rpush: await client.rpush("list", "x", "y", "z"),
    lrange: await client.lrange("list", 0, -1),
    sadd: await client.sadd("set", "m", "n"),
    smembers: (await client.smembers("set")).sort(),
    zadd: await client.zadd("zset", 1, "one", 2.5, "two"),
    zrange: await client.zrange("zset", 0, -1, "WITHSCORES"),
    xadd: await client.xadd("stream", "1-1", "field", "value"),
    xrange: await client.xrange("stream", "-", "+"),
    script: await client.eval("return {KEYS[1], ARGV[1]}", 1, "string", "argument"),
  };
}

async function scanned(client) {
  const fields = {};
  for (let number = 0; number < 1000; number++) fields[`field:${number}`] = String(number);
  await client.hset("large", fields);
  let count = 0;
  for await (const entries of client.hscanStream("large", { count: 100 })) count += entries.length / 2;
  return count;
}

async function split(client, keys) {
  return {
    mset: await client.mset(keys.flatMap((key, number) => [key, String(number)])),
    mget: await client.mget(...keys, "missing"),
    exists: await client.exists(...keys, "missing"),
    del: await client.del(...keys.slice(0, 50)),
    unlink: await client.unlink(...keys),
  };
}

async function pipelined(client, keys) {
  const pipeline = client.pipeline();
  keys.forEach((key, number) => pipeline.set(key, number).incr(key).get(key));
  pipeline.hset(keys[0], "field", "value");
  pipeline.mget(keys[1], keys[2]);
  const replies = await pipeline.exec();
  return {
    inOrder: keys.every((_, n) => {
      const [set, incr, get] = replies.slice(3 * n, 3 * n + 3).map(([, reply]) => reply);
      return set === "OK" && incr === n + 1 && get === String(n + 1);
    }),
    wrongType: messageOf(replies[3 * keys.length][0]),
    last: replies[3 * keys.length + 1],
  };
}

async function autoPipelined(keys) {
  const client = connect({ enableAutoPipelining: true });
  await Promise.all(keys.map((key, number) => client.set(key, number)));
  const values = await Promise.all(keys.map((key) => client.get(key)));
  return values.every((value, number) => value === String(number));
}

async function databases() {
  const clients = [0, 1, 7, 15].map((db) => connect({ db }));
  await Promise.all(clients.map((client, n) => client.set("same name", `database ${n}`)));
  await clients[0].select(15);
  return [...(await Promise.all(clients.map((client) => client.get("same name"))))];
}

async function errors(client) {
  const said = {};
  const attempts = {
    wrongType: () => client.incr("prefixed:list"),
    arity: () => client.call("GET"),
    crossSlot: () => client.rename("a", "b"),
    unknown: () => client.call("NOSUCH"),
    exec: () => client.call("EXEC"),
    database: () => client.select(99),
  };
  for (const [name, attempt] of Object.entries(attempts)) said[name] = await attempt().then(String, messageOf);
  said.after = await client.ping();
  return said;
}

async function transactions(client) {
  const other = connect();
  const pipelined = await client.multi().set("{t}a", 1).incr("{t}a").get("{t}a").exec();
  const stepwise = [await client.multi({ pipeline: false }), await client.incr("{t}a"), await client.get("{t}a")];
  stepwise.push(await client.exec());
  await client.multi({ pipeline: false });
  await client.set("{t}a", "discarded");
  const discarded = [await client.discard(), await client.get("{t}a")];
  await client.watch("{t}a");
  await other.set("{t}a", 3);
  const aborted = await client.multi().set("{t}a", "never").exec();
  const crossSlot = await client.multi().set("here", 1).set("there", 1).exec().then(String, messageOf);
  return { pipelined, stepwise, discarded, aborted, crossSlot, after: await client.get("{t}a") };
}

async function scripts() {
  const client = connect();
  client.defineCommand("both", { numberOfKeys: 1, lua: "return {KEYS[1], ARGV[1]}" });
  const defined = [await client.both("one", "x"), await client.both("two", "y")];
  const pipeline = client.pipeline();
  for (let number = 0; number < 20; number++) pipeline.both("three", "z");
  return { defined, pipelined: await pipeline.exec() };
}

async function subscriptions(client) {
  const subscriber = connect();
  const [messages, patterns] = [[], []];
  const all = new Promise((resolve) => {
    const look = () => messages.length === 3 && patterns.length === 2 && resolve();
    subscriber.on("message", (...message) => (messages.push(message), look()));
    subscriber.on("pmessage", (...message) => (patterns.push(message), look()));
  });
  const counts = [await subscriber.subscribe("news", "weather"), await subscriber.psubscribe("n*")];
  for (const [number, channel] of ["news", "news", "weather"].entries()) await client.publish(channel, number);
  await all;
  // Those of two channels, or of one whose slot moves, may come in another order.
  return { counts, messages: messages.sort(), patterns: patterns.sort() };
}

async function everyKey() {
  const client = connect({ db: 13 });
  await client.mset(Array.from({ length: 2000 }, (_, number) => [`every:${number}`, "x"]).flat());
  await client.rpush("every:list", "x");
  const found = new Set();
  for await (const names of client.scanStream({ match: "every:*[0-9]", count: 500 })) for (const name of names) found.add(name);
  const typed = new Set();
  for await (const names of client.scanStream({ type: "list", count: 500 })) for (const name of names) typed.add(name);
  const keys = await client.keys("every:*7");
  return { scanned: found.size, keys: keys.length, size: (await client.dbsize()) >= 2001, typed: [...typed] };
}

async function waited(client) {
  const [first, second, third] = [connect(), connect(), connect()];
  const none = await first.blpop("wait:nothing", 0.05);
  const popped = first.blpop("{wait}1", "{wait}2", 30);
  const least = second.bzpopmin("wait:zset", 30);
  const read = third.xread("BLOCK", 30000, "STREAMS", "wait:stream", "0");
  await client.rpush("{wait}2", "pushed");
  await client.zadd("wait:zset", 1, "member");
  await client.xadd("wait:stream", "1-1", "field", "value");
  return { none, popped: await popped, least: await least, read: await read };
}

async function many() {
  const clients = Array.from({ length: 20 }, (_, n) => connect({ connectionName: `ioredis-${n}` }));
  await Promise.all(clients.map((client) => Promise.all(Array.from({ length: 50 }, () => client.incr("shared")))));
  const listed = await clients[0].client("LIST");
  return { sum: await clients[0].get("shared"), listed: listed.match(/name=ioredis-\d+ /g).length };
}

const client = connect({ keyPrefix: "prefixed:" });
const keys = Array.from({ length: 300 }, (_, number) => `key:${number}`);
seen.types = await types(client);
seen.scanned = await scanned(client);
seen.split = await split(client, keys);
seen.pipelined = await pipelined(client, keys);
seen.autoPipelined = await autoPipelined(keys);
seen.databases = await databases();
seen.errors = await errors(connect());
seen.many = await many();
seen.transactions = await transactions(connect());
seen.scripts = await scripts();
seen.subscriptions = await subscriptions(connect());
seen.everyKey = await everyKey();
seen.waited = await waited(connect());
const large = "x".repeat(8 << 20);
seen.large = (await client.set("large value", large)) === "OK" && (await client.get("large value")) === large;
await Promise.all(opened.map((one) => one.quit()));
console.log(JSON.stringify(seen));
