// What an application does with ioredis's Cluster, against the node given as host and port, while nodes leave and join.
// It works until its standard input says so; prints what it saw as JSON. The test that runs this judges.

import Redis from "ioredis";

const cluster = new Redis.Cluster([{ host: process.argv[2], port: Number(process.argv[3]) }], {
  slotsRefreshInterval: 200,
  retryDelayOnFailover: 20,
});
const seen = { rounds: 0, errors: [], nodes: [], messages: 0 };
cluster.on("node error", () => {}); // a node that has left
let going = true;
process.stdin.on("data", () => (going = false));

async function round(number) {
  const keys = Array.from({ length: 20 }, (_, place) => `ioredis:${place}`);
  await Promise.all(keys.map((key) => cluster.set(key, `${number} ${key}`)));
  const values = await Promise.all(keys.map((key) => cluster.get(key)));
  if (values.some((value, place) => value !== `${number} ${keys[place]}`)) throw new Error(`read ${values}`);
  const replies = await cluster.pipeline().set("{tag}a", number).incr("{tag}count").get("{tag}a").exec();
  for (const [error] of replies) if (error) throw error;
  if (replies[2][1] !== String(number)) throw new Error(`read ${replies[2][1]}`);
  await cluster.publish("ioredis news", number);
}

await cluster.set("{tag}count", 0);
cluster.on("message", () => seen.messages++);
await cluster.subscribe("ioredis news");
console.log("ready");
while (going) {
  try {
    await round(seen.rounds++);
  } catch (error) {
    seen.errors.push(String(error.message));
  }
  await new Promise((resolve) => setTimeout(resolve, 5));
}
seen.nodes = cluster.nodes("all").map((node) => `${node.options.host}:${node.options.port}`);
seen.count = Number(await cluster.get("{tag}count"));
console.log(JSON.stringify(seen));
cluster.disconnect();
process.exit(); // now and then ioredis itself does not end
