// Names, traits and children in; elements out. Strings only ever become text: nothing here can make markup of them.

const DRAWINGS = 'http://www.w3.org/2000/svg';

/** element('p.soft', {title: '…'}, 'text', other): classes after dots, `on…` for events, `style` as an object. */
export function element(kind, traits = {}, ...children) {
  const [name, ...classes] = kind.split('.');
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(' ');
  return filled(made, traits, children);
}

/** The same for parts of a drawing. */
export function drawing(name, traits = {}, ...children) {
  return filled(document.createElementNS(DRAWINGS, name), traits, children);
}

function filled(made, traits, children) {
  for (const [key, value] of Object.entries(traits)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key === 'style') for (const [name, set] of Object.entries(value)) made.style.setProperty(name, set);
    else if (key === 'value' || key === 'checked') made[key] = value;
    else made.setAttribute(key, value === true ? '' : String(value));
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

let numGroups = 0;

/** A switch of a few choices: [[value, label], …]. Radio buttons, so that arrows and screen readers know it. */
export function segmented(label, choices, chosen, act) {
  const name = `choice-${(numGroups += 1)}`;
  return element('fieldset.segmented', {}, element('legend', {}, label), choices.map(([value, text]) =>
    element('label', {}, element('input', {
      type: 'radio', name, value, checked: value === chosen, onchange: () => act(value),
    }), element('span', {}, text))));
}

/** A list to choose from: [[value, label], …]. */
export function chooser(label, choices, chosen, act) {
  const list = element('select', { 'aria-label': label, onchange: () => act(list.value) },
    choices.map(([value, text]) => element('option', { value }, text)));
  list.value = chosen;
  return element('label.chooser', {}, element('span', {}, label), list);
}

let hurried = false;

/** Whether what is `framed` runs at once: before printing there is no next frame. */
export function hurry(now) {
  hurried = now;
}

/** The function, run once in the next frame however often it was called before it. */
export function framed(act) {
  let asked = false;
  return () => {
    if (hurried) act();
    if (hurried || asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; act(); });
  };
}

/** A canvas's context, with its bitmap as large as the screen's pixels. */
export function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
