// What applications do with BullMQ, with its default settings; prints what it saw as JSON. The third argument says what:
// "work", "flows" (jobs with parents in another queue), or "probe" and "probe-flows" for the first step that needs rules.

import { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } from "bullmq";

const connection = { host: process.argv[2], port: Number(process.argv[3]) };
const what = process.argv[4];
const opened = [];
const errors = [];

function open(made) {
  made.on("error", (error) => errors.push(error.message));
  opened.push(made);
  return made;
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function until(look, limit = 60000) {
  const end = Date.now() + limit;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`gave up waiting for ${look}; errors: ${errors}`);
    await sleep(20);
  }
}

async function ofQueues() {
  const names = ["mail", "pictures", "reports"];
  const done = [];
  const seen = {};
  const events = [];
  const queues = names.map((name) => open(new Queue(name, { connection })));
  for (const name of names) {
    open(
      new Worker(
        name,
        async (job) => {
          await job.log("begun");
          await job.updateProgress(50);
          if (job.name === "fails") throw new UnrecoverableError("meant to fail");
          if (job.name === "second" && job.attemptsMade === 0) throw new Error("meant to fail once");
          done.push(job.name);
          return job.data.number + 1;
        },
        { connection, concurrency: 5 },
      ),
    );
    events.push(open(new QueueEvents(name, { connection })));
  }
  await Promise.all(events.map((one) => one.waitUntilReady()));
  const [mail, pictures, reports] = queues;
  const jobs = [];
  for (let round = 0; round < 10; round++)
    for (const queue of queues) {
      jobs.push([queue, await queue.add("plain", { number: round })]);
      await sleep(20);
    }
  const bulk = await pictures.addBulk([1, 2, 3].map((number) => ({ name: "bulk", data: { number } })));
  const second = await mail.add("second", { number: 1 }, { attempts: 3, backoff: { type: "fixed", delay: 100 } });
  const delayed = await mail.add("delayed", { number: 1 }, { delay: 1000 });
  const urgent = await mail.add("urgent", { number: 1 }, { priority: 1 });
  const failing = await reports.add("fails", { number: 1 });
  const waiting = (queue, job) => job.waitUntilFinished(events[queues.indexOf(queue)], 60000);
  seen.plain = await Promise.all(jobs.map(([queue, job]) => waiting(queue, job)));
  seen.bulk = await Promise.all(bulk.map((job) => waiting(pictures, job)));
  seen.others = await Promise.all([second, delayed, urgent].map((job) => waiting(mail, job)));
  seen.failing = await waiting(reports, failing).catch((error) => error.message);
  await reports.upsertJobScheduler("often", { every: 200 }, { name: "repeated", data: { number: 1 } });
  await until(() => done.filter((name) => name === "repeated").length >= 3);
  seen.removed = await reports.removeJobScheduler("often");
  await mail.pause();
  const paused = await mail.add("paused", { number: 41 });
  seen.paused = await mail.isPaused();
  await mail.resume();
  seen.resumed = await waiting(mail, paused);
  const flow = await open(new FlowProducer({ connection })).add({
    name: "parent",
    queueName: "mail",
    data: { number: 1 },
    children: [1, 2].map((number) => ({ name: "child", queueName: "mail", data: { number } })),
  });
  seen.flow = await waiting(mail, flow.job);
  seen.children = Object.values(await flow.job.getChildrenValues()).sort();
  seen.again = await failing.retry().then(() => waiting(reports, failing)).catch((error) => error.message);
  seen.counts = await mail.getJobCounts("completed", "failed", "waiting", "active", "delayed");
  seen.failed = (await reports.getFailed()).map((job) => [job.name, job.failedReason]);
  seen.logs = (await mail.getJobLogs(urgent.id)).logs;
  seen.cleaned = (await mail.clean(0, 1000, "completed")).length;
  return seen;
}

async function ofFlows() {
  for (const name of ["order", "goods", "bill"])
    open(new Worker(name, async (job) => [job.name, Object.values(await job.getChildrenValues()).length], { connection }));
  const events = open(new QueueEvents("order", { connection }));
  await events.waitUntilReady();
  const flows = open(new FlowProducer({ connection }));
  const made = [];
  for (let number = 0; number < 10; number++) {
    made.push(
      await flows.add({
        name: `order-${number}`,
        queueName: "order",
        children: [
          { name: "goods", queueName: "goods", children: [{ name: "part", queueName: "goods" }] },
          { name: "bill", queueName: "bill" },
        ],
      }),
    );
    await sleep(100);
  }
  const queue = open(new Queue("bill", { connection }));
  const parent = made[9].job;
  const seen = { orders: await Promise.all(made.map((flow) => flow.job.waitUntilFinished(events, 60000))) };
  seen.states = await Promise.all(made.map((flow) => flow.job.getState()));
  seen.children = Object.values(await parent.getChildrenValues()).sort();
  seen.bills = await queue.getJobCountByTypes("completed");
  return seen;
}

async function probe() {
  await open(new Queue("mail", { connection })).add("plain", { number: 1 });
  return "added";
}

async function probeFlows() {
  const children = [{ name: "bill", queueName: "bill" }];
  await open(new FlowProducer({ connection })).add({ name: "order", queueName: "order", children });
  return "added";
}

const found = await { work: ofQueues, flows: ofFlows, probe, "probe-flows": probeFlows }[what]();
// What was told of errors is no part of what came of it.
if (errors.length) console.error([...new Set(errors)].join("\n"));
console.log(JSON.stringify(found));
await Promise.all(opened.map((one) => one.close()));
process.exit(0);
