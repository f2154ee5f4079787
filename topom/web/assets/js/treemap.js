// Lays out a treemap: rectangles whose areas are as what they stand for, and within them those of their parts. Squarified
// (Bruls, Huizing and van Wijk, 2000): a row takes one more while that makes its longest rectangle more like a square.

const HEAD = 20; // pixels for the name of one with others in it
const EDGE = 3; // pixels between it and them
const LEAST = 40; // pixels; where less is left, nothing is shown within
const HUE = 137.508; // degrees: neighbours get colours far apart

const sum = (nodes) => nodes.reduce((total, node) => total + node.bytes, 0);

// The prefixes that stand in no other, with those in them as `inside`, each the biggest first; `short` is what those add
// to the name. The last one, without a prefix, is what is left of `whole`, { bytes, keys }. A prefix whose shorter one is
// not told is left out: it counts in what is left.
export function nest(prefixes, whole) {
  const nodes = prefixes
    .filter((one) => one.bytes > 0)
    .map((one) => ({ ...one, inside: [] }))
    .sort((a, b) => a.depth - b.depth || b.bytes - a.bytes);
  const top = [];
  for (const node of nodes) {
    if (node.depth <= 1) top.push(node);
    else {
      const outer = nodes.find((other) => other.depth === node.depth - 1 && node.prefix.startsWith(other.prefix));
      node.short = node.prefix.slice(outer?.prefix.length) || node.prefix;
      outer?.inside.push(node);
    }
  }
  top.sort((a, b) => b.bytes - a.bytes);
  const bytes = whole.bytes - sum(top);
  const keys = top.reduce((left, node) => left - node.keys, whole.keys);
  return bytes > 0 ? [...top, { depth: 1, prefix: null, bytes, keys: Math.max(0, keys), inside: [] }] : top;
}

// The tiles of nested prefixes in a box { x, y, width, height } in pixels: { node, level, open, hue, x, y, width, height }.
// One that is open comes before the others that are in it. `whole` is what the box stands for.
export function layOut(nodes, whole, box, level = 0, hue = null) {
  const places = squarify(nodes.map((node) => node.bytes), Math.max(whole, sum(nodes)), box);
  return nodes.flatMap((node, at) => {
    const tile = { node, level, open: false, hue: hue ?? Math.round(200 + at * HUE) % 360, ...places[at] };
    const within = {
      x: tile.x + EDGE,
      y: tile.y + HEAD,
      width: tile.width - 2 * EDGE,
      height: tile.height - HEAD - EDGE,
    };
    if (!node.inside.length || within.width < LEAST || within.height < LEAST) return [tile];
    return [{ ...tile, open: true }, ...layOut(node.inside, node.bytes, within, level + 1, tile.hue)];
  });
}

// Rectangles for `sizes`, all above 0, in a box of which `whole` would take all.
export function squarify(sizes, whole, { x, y, width, height }) {
  const areas = sizes.map((size) => (size / whole) * width * height);
  const found = [];
  while (found.length < areas.length) {
    const first = found.length;
    const side = Math.min(width, height);
    let end = first + 1;
    while (end < areas.length && worst(areas.slice(first, end + 1), side) <= worst(areas.slice(first, end), side)) end += 1;
    const row = areas.slice(first, end);
    const area = row.reduce((total, part) => total + part, 0);
    const thick = side > 0 ? area / side : 0;
    let along = 0;
    for (const part of row) {
      const long = area > 0 ? (part / area) * side : 0;
      found.push(
        width < height
          ? { x: x + along, y, width: long, height: thick }
          : { x, y: y + along, width: thick, height: long },
      );
      along += long;
    }
    if (width < height) {
      y += thick;
      height = Math.max(0, height - thick);
    } else {
      x += thick;
      width = Math.max(0, width - thick);
    }
  }
  return found;
}

// How much longer than wide a row's longest rectangle is, if the row takes all of a side.
function worst(row, side) {
  const area = row.reduce((total, part) => total + part, 0);
  return Math.max((side * side * Math.max(...row)) / (area * area), (area * area) / (side * side * Math.min(...row)));
}
