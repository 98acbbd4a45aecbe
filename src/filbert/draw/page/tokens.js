// Words or tokens and the texts they stand in, in; running text whose units can be pointed at, moved to and coloured, out.

import { element } from './dom.js';
import { rove } from './keys.js';

/** The text with every unit an element of its own: {node, nodes}. What lies between units stays between them. */
export function running(view, units, label) {
  const nodes = [];
  const lines = [];
  const whole = view.windows.length === 1; // else what other windows read is only hinted at
  let [line, part, cursor] = [null, null, 0]; // a line for each text; specials stand where they were read
  const close = () => {
    const text = view.texts[part];
    const rest = text?.slice(cursor, text.length) ?? '';
    if (rest.trim()) line.append(whole ? rest : dots());
    cursor = text?.length ?? 0;
  };
  units.forEach((unit, index) => {
    const text = unit.part >= 0 ? view.texts[unit.part] : null;
    if (text && unit.part !== part) {
      close();
      if (part !== null || !line) lines.push((line = paragraph()));
      [part, cursor] = [unit.part, whole ? 0 : unit.start];
      if (text.slice(0, cursor).trim()) line.append(dots());
    } else if (!text) close();
    if (!line) lines.push((line = paragraph()));
    if (text) line.append(text.slice(cursor, Math.max(cursor, unit.start)));
    const shown = text?.slice(Math.max(cursor, unit.start), unit.end);
    line.append((nodes[index] = unitNode(shown || unit.text, index, shown ? '' : '.special')));
    if (text) cursor = Math.max(cursor, unit.end);
  });
  close();
  const node = element('div.running', { role: 'listbox', 'aria-label': label, 'aria-orientation': 'horizontal' }, lines);
  rove(node);
  return { node, nodes };
}

function paragraph() {
  return element('p', { dir: 'auto', role: 'presentation' });
}

function dots() {
  return element('span.soft', {}, ' … ');
}

/** Specials stand apart (bdi), so that [CLS] does not turn a line of Hebrew around. */
function unitNode(text, index, more) {
  return element(`${more ? 'bdi' : 'span'}.unit${more}`, { role: 'option', tabindex: -1, 'data-index': index, 'aria-selected': 'false' }, text);
}

/** Units one below the other, as a list at one side of the lines: {node, nodes}. */
export function stacked(units, label, side) {
  const nodes = units.map((unit, index) => element(`li.unit${unit.part < 0 ? '.special' : ''}`, {
    role: 'option', tabindex: -1, 'data-index': index, 'aria-selected': 'false',
  }, element('bdi', {}, unit.text)));
  const node = element(`ol.${side}`, { role: 'listbox', 'aria-label': label }, nodes);
  rove(node);
  return { node, nodes };
}

/** Pointing at a unit, or moving to it by keyboard, shows its attention; a click or Enter keeps it. */
export function pointable(holder, ctx, side) {
  const index = (event) => {
    const owner = event.target.closest?.('[data-index]');
    return owner && holder.contains(owner) ? Number(owner.dataset.index) : null;
  };
  const point = (event) => { const at = index(event); if (at !== null) ctx.point(side(), at); };
  const leave = () => ctx.point(null);
  const keep = (event) => { const at = index(event); if (at !== null) ctx.pin(side(), at); };
  holder.addEventListener('pointerover', point);
  holder.addEventListener('focusin', point);
  holder.addEventListener('pointerleave', leave);
  holder.addEventListener('focusout', leave);
  holder.addEventListener('click', keep);
  holder.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); keep(event); }
  });
}

const LEVELS = 20; // of colour, each a class of the style sheet: what does not change its class costs nothing
const SHOWN = 0.01; // weights from here on are told as numbers

/** Colours units by weights (as their square roots, as in the maps) and marks the one that is looked from or at. */
export function tint(nodes, weights, marked, numbers = false) {
  nodes.forEach((node, index) => {
    const weight = weights ? Math.max(0, weights[index]) : 0;
    const level = Math.min(LEVELS, Math.round(LEVELS * Math.sqrt(weight)));
    if (node.level !== level) {
      node.classList.remove(`w${node.level}`);
      if (level) node.classList.add(`w${level}`);
      node.level = level;
    }
    node.weight = weight;
    if (numbers && weight >= SHOWN) node.dataset.weight = weight.toFixed(2);
    else if (node.dataset.weight) delete node.dataset.weight;
    if (node.lit !== (index === marked)) node.classList.toggle('lit', (node.lit = index === marked));
  });
}
