// What the reader chose, in one place: changes come in, those who asked to hear of them are called.

/** A store of named values. A listener belongs to an element and is forgotten when that leaves the page. */
export function store(initial) {
  const state = { ...initial };
  let listeners = [];
  return {
    state,
    /** Calls act() after any of these names changed, as long as the element is on the page. */
    on(owner, names, act) {
      listeners.push({ owner, names: new Set(names), act });
    },
    /** Sets what differs, and tells. */
    change(values) {
      const changed = Object.keys(values).filter((name) => !same(state[name], values[name]));
      if (!changed.length) return;
      Object.assign(state, values);
      listeners = listeners.filter(({ owner }) => owner.isConnected);
      for (const { owner, names, act } of [...listeners]) {
        if (owner.isConnected && changed.some((name) => names.has(name))) act();
      }
    },
  };
}

function same(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}
