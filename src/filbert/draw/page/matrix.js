// One head in; its matrix with words along the edges, a cross at the cell that is pointed at and a loupe where cells are small, out.

import { imaged, paints, themeNow } from './colours.js';
import { element, framed, sized } from './dom.js';
import { say } from './words.js';

const [SMALLEST, LARGEST] = [13, 30]; // pixels of a cell that has labels
const LONGEST = 9; // characters of a label
const [LOUPE, ZOOM] = [15, 11]; // cells across, pixels each
const FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif";
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The matrix of the head that is chosen: rows look at columns. */
export function matrixView(ctx) {
  const canvas = element('canvas', { tabindex: 0, role: 'application', 'aria-label': say('matrix_label') });
  const node = element('div.matrix', {}, canvas);
  let [place, cell] = [null, null];
  const paint = framed(() => {
    const now = ctx.now();
    place = placed(node.clientWidth, now);
    const pen = sized(canvas, place.left + place.side * now.columns.length + 1, place.top + place.side * now.rows.length + 1);
    const theme = themeNow(ctx.store.state.theme);
    pen.strokeStyle = pen.fillStyle = paints(theme).soft;
    if (place.labels) labelled(pen, now, place, theme, ctx.lit());
    if (!now.weights) return;
    pen.imageSmoothingEnabled = place.side < 1;
    const image = pictured(now, theme);
    pen.drawImage(image, place.left, place.top, place.side * now.columns.length, place.side * now.rows.length);
    framedBy(pen, now, place, theme, ctx.lit(), cell);
    if (cell && !place.labels) loupe(pen, image, now, place, cell, theme);
  });
  const point = (found) => {
    cell = found;
    if (!found) return ctx.point(null);
    const side = ctx.store.state.direction === 'to' ? 'column' : 'row';
    ctx.point(side, found[side === 'row' ? 0 : 1], found);
    return paint();
  };
  canvas.addEventListener('pointermove', ({ offsetX, offsetY }) => point(cellAt(offsetX, offsetY, place, ctx.now())));
  canvas.addEventListener('pointerleave', () => point(null));
  canvas.addEventListener('focus', () => { if (canvas.matches(':focus-visible')) point(cell ?? [0, 0]); });
  canvas.addEventListener('blur', () => point(null));
  canvas.addEventListener('click', () => { if (cell) ctx.pin(ctx.store.state.focus?.side ?? 'row', ctx.store.state.focus?.index ?? cell[0]); });
  canvas.addEventListener('keydown', (event) => {
    if (!MOVES[event.key]) return;
    event.preventDefault();
    const { rows, columns } = ctx.now();
    const [row, column] = cell ?? [0, 0];
    const [down, right] = MOVES[event.key];
    point([Math.max(0, Math.min(rows.length - 1, row + down)), Math.max(0, Math.min(columns.length - 1, column + right))]);
  });
  ctx.store.on(node, ['layer', 'head', 'loaded', 'theme', 'focus', 'pinned'], paint);
  new ResizeObserver(paint).observe(node);
  return node;
}

const pictures = new WeakMap();

/** The weights as an image, made once for each theme. */
function pictured({ weights, rows, columns }, theme) {
  if (!pictures.has(weights)) pictures.set(weights, {});
  return (pictures.get(weights)[theme] ??= imaged(weights, columns.length, rows.length, theme));
}

/** How large cells are, and how much room labels take. */
function placed(width, { rows, columns }) {
  const room = 11 * Math.min(LONGEST, Math.max(2, ...[...rows, ...columns].map(({ text }) => [...text].length))) * 0.75 + 12;
  const side = Math.min(LARGEST, Math.floor((width - room - 1) / columns.length));
  if (side >= SMALLEST) return { left: room, top: room, side, labels: true };
  return { left: 0, top: 0, side: Math.min(LARGEST, (width - 1) / columns.length), labels: false };
}

function labelled(pen, { rows, columns }, { left, top, side }, theme, lit) {
  const { ink, soft } = paints(theme);
  pen.font = `12px ${FONT}`;
  pen.textBaseline = 'middle';
  rows.forEach(({ text }, at) => {
    pen.fillStyle = lit?.side === 'row' && lit.index === at ? ink : soft;
    pen.textAlign = 'right';
    pen.fillText(short(text), left - 7, top + side * (at + 0.5), left - 8);
  });
  columns.forEach(({ text }, at) => {
    pen.fillStyle = lit?.side === 'column' && lit.index === at ? ink : soft;
    pen.save();
    pen.translate(left + side * (at + 0.5), top - 7);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = 'left';
    pen.fillText(short(text), 0, 0, top - 8);
    pen.restore();
  });
}

function short(text) {
  const signs = [...text];
  return signs.length > LONGEST ? `${signs.slice(0, LONGEST - 1).join('')}…` : text;
}

/** A frame around all, around the row or column that is looked from or at, and around the cell. */
function framedBy(pen, { rows, columns }, { left, top, side }, theme, lit, cell) {
  const { soft, mark } = paints(theme);
  const [width, height] = [side * columns.length, side * rows.length];
  pen.lineWidth = 1;
  pen.globalAlpha = 0.35;
  pen.strokeStyle = soft;
  pen.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
  pen.globalAlpha = 1;
  pen.strokeStyle = mark;
  pen.lineWidth = 1.5;
  if (lit?.side === 'row') pen.strokeRect(left, top + side * lit.index, width, side);
  if (lit?.side === 'column') pen.strokeRect(left + side * lit.index, top, side, height);
  if (cell) pen.strokeRect(left + side * cell[1], top + side * cell[0], side, side);
}

/** The cells around one, large, in the corner beside the diagonal that is further from it. */
function loupe(pen, image, { rows, columns }, { side }, [row, column], theme) {
  const half = (LOUPE - 1) / 2;
  const size = LOUPE * ZOOM;
  const below = column / columns.length > row / rows.length; // where the cell is above the diagonal
  const [x, y] = below ? [10, rows.length * side - size - 10] : [columns.length * side - size - 10, 10];
  if (x < 0 || y < 0) return;
  pen.imageSmoothingEnabled = false;
  pen.fillStyle = theme === 'dark' ? '#0d0f12' : '#eceae6';
  pen.fillRect(x - 4, y - 4, size + 8, size + 8);
  pen.drawImage(image, column - half, row - half, LOUPE, LOUPE, x, y, size, size);
  pen.strokeStyle = paints(theme).mark;
  pen.lineWidth = 1.5;
  pen.strokeRect(x + half * ZOOM, y + half * ZOOM, ZOOM, ZOOM);
}

function cellAt(x, y, place, { rows, columns }) {
  if (!place) return null;
  const [row, column] = [Math.floor((y - place.top) / place.side), Math.floor((x - place.left) / place.side)];
  return row >= 0 && column >= 0 && row < rows.length && column < columns.length ? [row, column] : null;
}
