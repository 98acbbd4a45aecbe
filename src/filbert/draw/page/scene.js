// A scene as JSON in; views with texts, units and attention maps whose weights can be asked for, out.

/** The scene in the page. The text it stood in is given up: it can be as long as 30 million characters. */
export function sceneOfPage() {
  const holder = document.getElementById('scene');
  const scene = JSON.parse(holder.textContent);
  holder.remove();
  return scene;
}

/** One view, ready to be shown. */
export function viewOf(raw) {
  const texts = (raw.texts ?? []).map(sliceable);
  const windows = (raw.windows ?? []).map((found) => windowOf(found, raw.depth));
  return { ...raw, texts, windows };
}

/** A text whose characters are counted as Python counts them: by code point, where JavaScript counts halves. */
export function sliceable(text) {
  const places = [];
  for (let at = 0; at < text.length; at += text.codePointAt(at) > 0xffff ? 2 : 1) places.push(at);
  places.push(text.length);
  const place = (at) => places[Math.max(0, Math.min(at, places.length - 1))];
  return { text, length: places.length - 1, slice: (start, end) => text.slice(place(start), place(end)) };
}

/** A stretch of text that the model read at once: its tokens, words, and one `Maps` for each kind of attention. */
function windowOf(raw, depth) {
  const found = { tokens: raw.tokens ?? [], words: raw.words ?? [], kinds: [], measures: new Map() };
  takeIn(found, raw, depth);
  return found;
}

/** Adds the attention of another answer (more layers of the same window) to a window. */
export function takeIn(found, raw, depth = 0) {
  for (const entry of raw.attention ?? []) {
    let maps = found.kinds.find(({ kind }) => kind === entry.kind);
    if (!maps) found.kinds.push((maps = new Maps(found, entry)));
    maps.add(entry);
    if (entry === raw.attention[0]) takeMeasures(found, raw.heads, entry.layers);
  }
  if (depth && found.kinds.length) found.kinds[0].promise(depth);
}

function takeMeasures(found, heads, layers) {
  for (const [name, table] of Object.entries(heads ?? {})) {
    if (!table) continue;
    if (!found.measures.has(name)) found.measures.set(name, new Map());
    const whole = table.length > layers.length; // then a row for each layer there is, asked for or not
    table.forEach((row, place) => found.measures.get(name).set(whole ? place : layers[place], row));
  }
}

/** One kind of attention in one window: weights of [layer][head] as rows (who asks) × columns (who answers). */
class Maps {
  constructor(found, entry) {
    const { kind, heads, rows, columns } = entry;
    Object.assign(this, { kind, heads });
    this.square = JSON.stringify(rows ?? null) === JSON.stringify(columns ?? null); // a text that looks at itself
    this.tokens = { row: rows ?? found.tokens, column: columns ?? found.tokens };
    this.words = { row: rows ? entry.row_words ?? [] : found.words, column: columns ? entry.column_words ?? [] : found.words };
    if (this.square) for (const units of [this.tokens, this.words]) units.column = units.row;
    this.byWords = this.words.row.length > 0 && this.words.column.length > 0;
    this.layers = [];
    this.planes = new Map(); // layer → codes of [head, row, column]
    this.waiting = [];
    this.thumbs = { tokens: new Map(), words: new Map() };
    this.kept = new Map();
  }

  add(entry) {
    this.promise(0, entry.layers);
    this.waiting.push(entry);
  }

  /** Layers that will come, so that they have a place. */
  promise(depth, layers = Array.from({ length: depth }, (_, layer) => layer)) {
    this.layers = [...new Set([...this.layers, ...layers])].sort((one, other) => one - other);
  }

  /** Who stands at the rows or columns, word by word or token by token. */
  units(side, unit) {
    return unit === 'words' && this.byWords ? this.words[side] : this.tokens[side];
  }

  /** Inflates all that waits; tells after each layer. */
  async inflate(told) {
    while (this.waiting.length) {
      const { layers, values } = this.waiting.shift();
      const size = this.heads.length * this.tokens.row.length * this.tokens.column.length;
      const codes = new Uint8Array(size * layers.length);
      let done = 0;
      await inflated(values, codes, (count) => {
        for (; done < layers.length && (done + 1) * size <= count; done += 1) {
          this.planes.set(layers[done], codes.subarray(done * size, (done + 1) * size));
          told(layers[done]);
        }
      });
    }
  }

  /** The weights of one head, row by row, or null while they are on their way. */
  weights(layer, head, unit) {
    const key = `${unit}/${layer}/${head}`;
    if (!this.planes.has(layer)) return null;
    if (!this.kept.has(key)) {
      if (this.kept.size >= 8) this.kept.delete(this.kept.keys().next().value);
      this.kept.set(key, this.reckoned(layer, head, unit));
    }
    return this.kept.get(key);
  }

  reckoned(layer, head, unit) {
    const size = this.tokens.row.length * this.tokens.column.length;
    const codes = this.planes.get(layer).subarray(this.heads.indexOf(head) * size);
    const found = new Float32Array(size);
    for (let at = 0; at < size; at += 1) found[at] = WEIGHTS[codes[at]];
    return unit === 'words' && this.byWords ? this.wordly(found) : found;
  }

  /** Word by word: what its tokens get is summed, what its tokens ask is averaged, so that rows still sum to 1. */
  wordly(weights) {
    const [asks, answers] = [this.words.row, this.words.column];
    const [rowOf, columnOf] = ['row', 'column'].map((side) => places(this.words[side], this.tokens[side].length));
    const found = new Float32Array(asks.length * answers.length);
    for (let row = 0, at = 0; row < rowOf.length; row += 1) {
      const to = rowOf[row] * answers.length;
      const share = to < 0 ? 0 : 1 / asks[rowOf[row]].tokens.length;
      for (let column = 0; column < columnOf.length; column += 1, at += 1) {
        if (share && columnOf[column] >= 0) found[to + columnOf[column]] += share * weights[at];
      }
    }
    return found;
  }
}

/** For each token the word that it is of, or -1. */
function places(words, count) {
  const found = new Int32Array(count).fill(-1);
  words.forEach((word, place) => { for (const token of word.tokens) found[token] = place; });
  return found;
}

const WEIGHTS = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);

/** Fills `codes` from base64 of deflated bytes, and tells how far it came. */
async function inflated(text, codes, told) {
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')).getReader();
  let count = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    codes.set(value, count); // more than there is room for is an error here
    count += value.length;
    told(count);
  }
  if (count !== codes.length) throw new RangeError(`attention has ${count} values, not ${codes.length}`);
}
