// What an application does with the client-side cache of node-redis, against the address given as host and port; prints
// what it saw as JSON. Nothing is judged here: the test that runs this knows what has to come out.

import { BasicClientSideCache, createClient } from "redis";

const [host, port] = [process.argv[2], Number(process.argv[3])];
const KEYS = Array.from({ length: 50 }, (_, number) => `node-redis-cache:${number}`);
const ROUNDS = 20;
const LIMIT_SECONDS = 30;
const opened = [];

async function connect(options = {}) {
  const client = createClient({ socket: { host, port, reconnectStrategy: false }, RESP: 3, ...options });
  client.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  opened.push(client);
  return client.connect();
}

async function until(condition) {
  const end = Date.now() + LIMIT_SECONDS * 1000;
  while (Date.now() < end) {
    if (await condition()) {
      return true;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return false;
}

const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 0, recordStats: true });
const reader = await connect({ clientSideCache: cache });
const writer = await connect();
const all = (value) => async () => (await Promise.all(KEYS.map((key) => reader.get(key)))).every((got) => got === value);

const seen = { rounds: 0 };
for (let round = 0; round < ROUNDS; round += 1) {
  const value = `value ${round}`;
  await Promise.all(KEYS.map((key) => writer.set(key, value)));
  seen.rounds += await until(all(value));
  await all(value)();
}
seen.hits = cache.stats().hitCount;
await writer.del(KEYS);
seen.gone = await until(all(null));
for (const client of opened) {
  client.destroy();
}
console.log(JSON.stringify(seen));
