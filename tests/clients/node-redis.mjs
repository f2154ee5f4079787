// What an application does with node-redis, against the address given as host and port, by the protocol given as 2 or 3;
// prints what it saw as JSON. Nothing is judged here: the test that runs this knows what has to come out.

import { createClient, defineScript } from "redis";

const [host, port, protocol] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const seen = {};
const opened = [];
const prefix = `node-redis:${protocol}`;

const scripts = {
  both: defineScript({
    SCRIPT: "return {KEYS[1], ARGV[1]}",
    NUMBER_OF_KEYS: 1,
    parseCommand(parser, key, argument) {
      parser.pushKey(key);
      parser.push(argument);
    },
    transformReply: (reply) => reply,
  }),
};

async function connect(options = {}) {
  const client = createClient({ socket: { host, port, reconnectStrategy: false }, RESP: protocol, scripts, ...options });
  client.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  opened.push(client);
  return client.connect();
}

const messageOf = (error) => error.message;
const plain = (fields) => ({ ...fields });

async function types(client) {
  return {
    set: await client.set(`${prefix}:string`, "välue", { expiration: { type: "EX", value: 1000 } }),
    get: await client.get(`${prefix}:string`),
    missing: await client.get(`${prefix}:missing`),
    hSet: await client.hSet(`${prefix}:hash`, { a: "1", b: "2" }),
    hGetAll: plain(await client.hGetAll(`${prefix}:hash`)),
    rPush: await client.rPush(`${prefix}:list`, ["x", "y", "z"]),
    lRange: await client.lRange(`${prefix}:list`, 0, -1),
    sAdd: await client.sAdd(`${prefix}:set`, ["m", "n"]),
    sMembers: [...(await client.sMembers(`${prefix}:set`))].sort(),
    zAdd: await client.zAdd(`${prefix}:zset`, [{ score: 1, value: "one" }, { score: 2.5, value: "two" }]),
    zRange: await client.zRangeWithScores(`${prefix}:zset`, 0, -1),
    xAdd: await client.xAdd(`${prefix}:stream`, "1-1", { field: "value" }),
  };
}

async function pipelined(client) {
  // Sent together, without waiting for one another.
  const keys = Array.from({ length: 300 }, (_, number) => `${prefix}:key:${number}`);
  await Promise.all(keys.map((key, number) => client.set(key, number)));
  const values = await Promise.all(keys.map((key) => client.incr(key)));
  const many = await client.mGet([...keys, `${prefix}:missing`]);
  return {
    inOrder: values.every((value, number) => value === number + 1),
    mGet: many.slice(0, 300).every((value, number) => value === String(number + 1)) && many[300] === null,
    del: await client.del(keys),
  };
}

async function transactions(client) {
  const [key, other] = [`{${prefix}}a`, await connect()];
  const executed = await client.multi().set(key, 1).incr(key).get(key).exec();
  const pipelined = await client.multi().set(`${prefix}:here`, 1).set(`${prefix}:there`, 2).execAsPipeline();
  await client.watch(key);
  await other.set(key, 3);
  const watched = await client.multi().set(key, "never").exec().then(String, (error) => error.constructor.name);
  const crossSlot = await client.multi().set("here", 1).set("there", 1).exec().then(String, messageOf);
  return { executed, pipelined, watched, crossSlot, after: await client.get(key) };
}

async function subscriptions(client) {
  const subscriber = await connect();
  const [messages, patterns] = [[], []];
  await new Promise(async (resolve) => {
    const look = () => messages.length === 3 && patterns.length === 2 && resolve();
    const hear = (message, channel) => (messages.push([channel, message]), look());
    await subscriber.subscribe([`${prefix}:news`, `${prefix}:weather`], hear);
    await subscriber.pSubscribe(`${prefix}:n*`, (message, channel) => (patterns.push([channel, message]), look()));
    await client.publish(`${prefix}:news`, "0");
    await client.publish(`${prefix}:news`, "1");
    await client.publish(`${prefix}:weather`, "2");
  });
  await subscriber.unsubscribe([`${prefix}:news`, `${prefix}:weather`]);
  await subscriber.pUnsubscribe(`${prefix}:n*`);
  const unprefixed = (found) => found.map(([channel, message]) => [channel.slice(prefix.length + 1), message]).sort();
  return { messages: unprefixed(messages), patterns: unprefixed(patterns) };
}

async function everyKey() {
  const client = await connect({ database: 9 + protocol });
  await client.mSet(Array.from({ length: 2000 }, (_, number) => [`every:${number}`, "x"]));
  const found = new Set();
  for await (const names of client.scanIterator({ MATCH: "every:*", COUNT: 500 })) for (const name of names) found.add(name);
  return { scanned: found.size, keys: (await client.keys("every:*7")).length, size: (await client.dbSize()) >= 2000 };
}

async function waited(client) {
  const [first, second] = [await connect(), await connect()];
  const none = await first.blPop(`${prefix}:nothing`, 0.05);
  const popped = first.blPop([`{${prefix}}1`, `{${prefix}}2`], 30);
  const least = second.bzPopMin(`${prefix}:waited`, 30);
  await client.rPush(`{${prefix}}2`, "pushed");
  await client.zAdd(`${prefix}:waited`, { score: 1, value: "member" });
  return { none, popped: (await popped).element, least: (await least).value };
}

async function errors(client) {
  const said = {};
  const attempts = {
    wrongType: () => client.incr(`${prefix}:list`),
    arity: () => client.sendCommand(["GET"]),
    unknown: () => client.sendCommand(["NOSUCH"]),
    crossSlot: () => client.rename("a", "b"),
  };
  for (const [name, attempt] of Object.entries(attempts)) said[name] = await attempt().then(String, messageOf);
  said.after = await client.ping();
  return said;
}

const client = await connect();
seen.types = await types(client);
seen.pipelined = await pipelined(client);
seen.transactions = await transactions(client);
seen.scripts = [await client.both("one", "x"), await client.both("two", "y")];
seen.subscriptions = await subscriptions(client);
seen.everyKey = await everyKey();
seen.waited = await waited(client);
seen.errors = await errors(client);
await Promise.all(opened.map((one) => one.close()));
console.log(JSON.stringify(seen));
