// What an application does with node-resque, with its default settings; prints what it saw as JSON.

import resque from "node-resque";

const { Plugins, Queue, Scheduler, Worker } = resque;

const connection = { host: process.argv[2], port: Number(process.argv[3]), database: 0, pkg: "ioredis" };
const done = [];
const failed = [];
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const jobs = {
  add: {
    plugins: [Plugins.JobLock, Plugins.QueueLock],
    pluginOptions: { JobLock: { reEnqueue: true } },
    perform: async (one, two) => {
      done.push(one + two);
      return one + two;
    },
  },
  second: {
    plugins: [Plugins.Retry],
    pluginOptions: { Retry: { retryLimit: 2, retryDelay: 100 } },
    perform: async (number) => {
      failed.push(number);
      if (failed.length < 2) throw new Error("meant to fail once");
      done.push(number);
    },
  },
  fail: {
    perform: async () => {
      throw new Error("meant to fail");
    },
  },
};

async function until(look) {
  for (const end = Date.now() + 60000; Date.now() < end; await sleep(20)) if (await look()) return;
  throw new Error(`gave up waiting for ${look}`);
}

const problem = (error) => console.error(error.message ?? error);
const queue = new Queue({ connection }, jobs);
queue.on("error", problem);
await queue.connect();
if (process.argv[4] === "probe") {
  console.log(JSON.stringify(await queue.enqueue("math", "fail")));
  process.exit(0);
}
const worker = new Worker({ connection, queues: ["math", "other"], timeout: 50 }, jobs);
const scheduler = new Scheduler({ connection, timeout: 50 }, jobs);
for (const one of [worker, scheduler]) one.on("error", problem);
await worker.connect();
await scheduler.connect();
worker.start();
scheduler.start();
const seen = { enqueued: [] };
for (let number = 0; number < 20; number++) {
  seen.enqueued.push(await queue.enqueue(number % 2 ? "math" : "other", "add", [number, 1000]));
  await sleep(50);
}
await queue.enqueueIn(500, "math", "add", [1, 1]);
await queue.enqueueAt(Date.now() + 3600000, "math", "add", [7, 7]);
seen.scheduled = (await queue.scheduledAt("math", "add", [7, 7])).length;
seen.delDelayed = (await queue.delDelayed("math", "add", [7, 7])).length;
await queue.enqueue("math", "second", [5]);
await queue.enqueue("other", "fail");
await until(() => done.length === 22);
await until(async () => (await queue.failedCount()) === 1);
seen.done = done.sort((one, other) => one - other);
seen.failed = (await queue.failed(0, 10)).map((one) => [one.queue, one.error]);
await until(async () => (await queue.stats())["processed"] === "22");
seen.queues = (await queue.queues()).sort();
seen.left = [await queue.length("math"), await queue.length("other")];
seen.workers = Object.values(await queue.workers());
await scheduler.end();
await worker.end();
seen.after = Object.keys(await queue.workers()).length;
await queue.end();
console.log(JSON.stringify(seen));
process.exit(0);
