// An application that caches with ioredis, which speaks RESP2: one connection reads, another one is told what has changed.
// It runs against the address given as host and port; prints what it saw as JSON. Nothing is judged here: the test that
// runs this knows what has to come out.

import Redis from "ioredis";

const [host, port] = [process.argv[2], Number(process.argv[3])];
const CHANNEL = "__redis__:invalidate";
const ROUNDS = 10;
const LIMIT_SECONDS = 30;
const WORKERS = 2;

function connect(options = {}) {
  const client = new Redis({ host, port, ...options });
  client.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  return client;
}

class Cache {
  values = new Map();
  // What is asked for, and has not changed meanwhile.
  asked = new Map();
  hits = 0;
  tracked = 0;

  constructor(data, words) {
    Object.assign(this, { data, words });
    words.on("messageBuffer", (channel, keys) => this.drop(keys));
    words.on("close", () => this.drop(null));
    data.on("close", () => this.drop(null));
    words.on("ready", () => this.listen());
    data.on("ready", () => this.track());
  }

  async listen() {
    this.id = await this.words.client("ID");
    await this.words.subscribe(CHANNEL);
    await this.track();
  }

  async track() {
    this.drop(null);
    if (this.id !== undefined) {
      await this.data.client("TRACKING", "ON", "REDIRECT", this.id);
      this.tracked += 1;
    }
  }

  drop(keys) {
    for (const map of [this.values, this.asked]) {
      if (keys === null) map.clear();
      else keys.forEach((key) => map.delete(key.toString()));
    }
  }

  async get(key) {
    if (this.values.has(key)) {
      this.hits += 1;
      return this.values.get(key);
    }
    const mine = {};
    this.asked.set(key, mine);
    const value = await this.data.get(key);
    if (this.asked.get(key) === mine) {
      this.asked.delete(key);
      this.values.set(key, value);
    }
    return value;
  }

  async close() {
    await this.data.quit();
    await this.words.quit();
  }
}

async function until(condition) {
  const end = Date.now() + LIMIT_SECONDS * 1000;
  while (Date.now() < end) {
    if (await condition()) return true;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return false;
}

// The numbers of a worker's clients have the same remainder. Where connections go, the system decides.
async function opened(together) {
  for (;;) {
    const data = connect();
    const words = connect({ autoResubscribe: false, lazyConnect: true });
    const number = await data.client("ID");
    const cache = new Cache(data, words);
    await words.connect();
    await until(() => cache.tracked);
    if ((number % WORKERS === cache.id % WORKERS) === together) return cache;
    await cache.close();
  }
}

async function used(writer, cache, prefix) {
  const keys = Array.from({ length: 20 }, (_, number) => `${prefix}:${number}`);
  const all = (value) => async () =>
    (await Promise.all(keys.map((key) => cache.get(key)))).every((got) => got === value);
  const write = (value) => Promise.all(keys.map((key) => writer.set(key, value)));
  const seen = { rounds: 0 };
  for (let round = 0; round < ROUNDS; round += 1) {
    await write(`value ${round}`);
    seen.rounds += await until(all(`value ${round}`));
    await all(`value ${round}`)();
  }
  seen.hit = cache.hits > 0;
  // The connection that is told is lost, and another one takes its place.
  const before = cache.tracked;
  await writer.client("KILL", "ID", cache.id);
  await write("meanwhile");
  seen.again = await until(() => cache.tracked > before);
  await write("later");
  seen.later = await until(all("later"));
  await cache.close();
  return seen;
}

const writer = connect();
const seen = {
  together: await used(writer, await opened(true), "ioredis-cache:together"),
  apart: await used(writer, await opened(false), "ioredis-cache:apart"),
};
await writer.quit();
console.log(JSON.stringify(seen));
