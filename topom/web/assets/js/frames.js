// The time that drawing may take. All work on the page's parts is queued here and spread over frames, so that a frame
// has at most a few milliseconds of it, however much changes at once.

export const FRAME_MILLISECONDS = 4;

const waiting = new Map();
let asked = false;

// What the frames took, for those who look: how many there were, how many of them took too long, and all together in
// milliseconds.
export const spent = { frames: 0, long: 0, total: 0 };
const LONG_MILLISECONDS = 8;

// Do some work in one of the next frames. Work under the same key is done once. Work that returns true has more to do,
// and comes again after the others.
export function soon(key, work) {
  waiting.set(key, work);
  if (!asked) {
    asked = true;
    requestAnimationFrame(frame);
  }
}

export function cancel(key) {
  waiting.delete(key);
}

function frame() {
  asked = false;
  const began = performance.now();
  const unfinished = [];
  for (const [key, work] of waiting) {
    waiting.delete(key);
    let more = false;
    try {
      more = work(began + FRAME_MILLISECONDS);
    } catch (error) {
      console.error(error);
    }
    if (more === true) unfinished.push([key, work]);
    if (performance.now() - began >= FRAME_MILLISECONDS) break;
  }
  for (const [key, work] of unfinished) if (!waiting.has(key)) waiting.set(key, work);
  const took = performance.now() - began;
  spent.frames += 1;
  spent.total += took;
  if (took > LONG_MILLISECONDS) spent.long += 1;
  if (waiting.size && !asked) {
    asked = true;
    requestAnimationFrame(frame);
  }
}
