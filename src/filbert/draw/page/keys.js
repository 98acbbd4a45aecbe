// Keys in; moves among words, heads and cells, short cuts, and a help overlay out.

import { element } from './dom.js';
import { say } from './words.js';

const STEPS = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };

/** Arrow keys move among the [data-index] inside; Tab enters and leaves the whole at the one that was last. */
export function rove(holder) {
  holder.addEventListener('focusin', ({ target }) => {
    if (!target.hasAttribute('data-index')) return;
    for (const other of holder.querySelectorAll('[data-index][tabindex="0"]')) other.tabIndex = -1;
    target.tabIndex = 0;
  });
  holder.addEventListener('keydown', (event) => {
    if (!event.target.hasAttribute?.('data-index') || event.ctrlKey || event.metaKey || event.altKey) return;
    const nodes = [...holder.querySelectorAll('[data-index]')];
    const next = neighbour(nodes, nodes.indexOf(event.target), event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  });
  holder.querySelector('[data-index]')?.setAttribute('tabindex', '0');
}

function neighbour(nodes, at, key) {
  if (key === 'ArrowUp' || key === 'ArrowDown') return lineAway(nodes, at, key === 'ArrowUp');
  if (!(key in STEPS)) return null;
  const turned = Math.abs(STEPS[key]) === 1 && getComputedStyle(nodes[at].parentElement).direction === 'rtl';
  return nodes[Math.max(0, Math.min(nodes.length - 1, at + (turned ? -STEPS[key] : STEPS[key])))];
}

/** The one on the nearest line above or below that is nearest sideways. */
function lineAway(nodes, at, above) {
  const here = nodes[at].getBoundingClientRect();
  let [best, least] = [null, Infinity];
  for (const node of nodes) {
    const box = node.getBoundingClientRect();
    const down = above ? here.top - box.top : box.top - here.top;
    if (down < here.height / 2) continue;
    const far = 1000 * Math.round(down / 4) + Math.abs(box.left + box.width / 2 - here.left - here.width / 2);
    if (far < least) [best, least] = [node, far];
  }
  return best;
}

/** Short cuts: {key: act}. None while the reader types. */
export function shortcuts(acts) {
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest?.('textarea, select, input:not([type=radio]):not([type=checkbox])');
    if (event.key !== 'Escape' && (typing || event.ctrlKey || event.metaKey || event.altKey)) return;
    if (document.querySelector('dialog[open]') || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
}

const KEYS = [
  ['← → ↑ ↓', 'key_arrows'], ['Enter', 'key_pin'], ['Esc', 'key_escape'], ['[ ]', 'key_layers'], [', .', 'key_heads'],
  ['l m', 'key_large'], ['w', 'key_units'], ['f', 'key_direction'], ['g t', 'key_grid'], ['d', 'key_theme'],
  ['z', 'key_language'], ['?', 'key_help'],
];

/** Opens the list of keys over the page. */
export function showHelp() {
  const overlay = element('dialog.help', { 'aria-label': say('help'), onclose: () => overlay.remove() },
    element('h2', {}, say('help')), element('p.soft', {}, say('keys_about')),
    element('dl', {}, KEYS.map(([keys, name]) =>
      element('div', {}, element('dt', {}, keys.split(' ').map((key) => element('kbd', {}, key))), element('dd', {}, say(name))))),
    element('button', { type: 'button', autofocus: true, onclick: () => overlay.close() }, say('close')));
  overlay.addEventListener('click', ({ target }) => { if (target === overlay) overlay.close(); });
  overlay.addEventListener('keydown', ({ key }) => { if (key === '?') overlay.close(); });
  document.body.append(overlay);
  overlay.showModal();
}

const SHOWN = 'data-tip';

/** What an element says of itself (data-tip), beside it while it is pointed at or focused. */
export function tips() {
  const tip = element('div.tip', { role: 'tooltip', hidden: true });
  document.body.append(tip);
  const show = ({ target }) => {
    const owner = target.closest?.(`[${SHOWN}]`);
    tip.hidden = !owner;
    if (!owner) return;
    tip.textContent = owner.getAttribute(SHOWN);
    const box = owner.getClientRects()[0] ?? owner.getBoundingClientRect();
    const left = Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left) + window.scrollX}px`;
    tip.style.top = `${(box.top > tip.offsetHeight + 12 ? box.top - tip.offsetHeight - 6 : box.bottom + 6) + window.scrollY}px`;
  };
  const hide = () => { tip.hidden = true; };
  document.addEventListener('pointerover', show);
  document.addEventListener('focusin', show);
  document.addEventListener('focusout', hide);
  document.addEventListener('keydown', ({ key }) => { if (key === 'Escape') hide(); });
  document.addEventListener('scroll', hide, true);
}
