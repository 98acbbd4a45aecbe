// The units of two views in; for each unit of one, the one of the other that stands for it (-1: none) out.

/** Two models on one text: by the characters they share. Two texts: by the longest common run of words. */
export function aligned(one, other, sameText) {
  return sameText ? byPlace(one, other) : byOrder(one, other);
}

function byPlace(one, other) {
  let from = 0;
  return one.map((unit, place) => {
    if (unit.part < 0) return special(one, other, place);
    let [best, most] = [-1, 0];
    for (let at = from; at < other.length; at += 1) {
      const { part, start, end } = other[at];
      if (part !== unit.part) continue;
      if (start >= unit.end) break;
      const shared = Math.min(end, unit.end) - Math.max(start, unit.start);
      if (shared > most) [best, most] = [at, shared];
      if (end <= unit.start) from = at;
    }
    return best;
  });
}

/** The n-th [SEP] here stands for the n-th [SEP] there. */
function special(one, other, place) {
  const { text } = one[place];
  let left = one.slice(0, place).filter((unit) => unit.part < 0 && unit.text === text).length;
  return other.findIndex((unit) => unit.part < 0 && unit.text === text && left-- === 0);
}

function byOrder(one, other) {
  const [m, n] = [one.length, other.length];
  const best = new Uint16Array((m + 1) * (n + 1)); // best[i, j]: the longest from i and j on
  for (let i = m - 1; i >= 0; i -= 1) {
    for (let j = n - 1; j >= 0; j -= 1) {
      const next = (i + 1) * (n + 1) + j;
      best[i * (n + 1) + j] = one[i].text === other[j].text ? best[next + 1] + 1 : Math.max(best[next], best[i * (n + 1) + j + 1]);
    }
  }
  const found = new Array(m).fill(-1);
  for (let i = 0, j = 0; i < m && j < n;) {
    if (one[i].text === other[j].text) found[i++] = j++;
    else if (best[(i + 1) * (n + 1) + j] >= best[i * (n + 1) + j + 1]) i += 1;
    else j += 1;
  }
  return replaced(found, n);
}

/** Between two matches, as many words here as there: word for word, they stand for each other. */
function replaced(found, count) {
  for (let start = 0; start < found.length;) {
    if (found[start] >= 0) { start += 1; continue; }
    let end = start;
    while (end < found.length && found[end] < 0) end += 1;
    const before = start ? found[start - 1] + 1 : 0;
    if ((end < found.length ? found[end] : count) - before === end - start) for (let at = start; at < end; at += 1) found[at] = before + at - start;
    start = end;
  }
  return found;
}

/** Where two texts differ: what stood there and what stands there now, or null where they are one. */
export function edit(before, after) {
  if (before === after) return null;
  const [one, other] = [[...before], [...after]];
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  return { from: one.slice(start, one.length - end).join(''), to: other.slice(start, other.length - end).join('') };
}
