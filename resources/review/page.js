// The page of one expert: the shown item, the answers, and how both are stored.
const byId = (id) => document.getElementById(id);
const { page, expert, items } = JSON.parse(byId('data').textContent);
const known = new Set(items.map(({ item }) => item));
const kept = `cxr-ils-review:${page}`;
const view = new View(byId('canvas'), showView);
const pictures = new Map();
const undone = [];
let answers = {};
let at = 0;
let since = performance.now();
let unsaved = false;
let stored = false;

// ---- what is kept ---------------------------------------------------------------------------------------------------

function answer(item) {
  return (answers[item] ||= { verdict: null, note: '', seconds: 0 });
}

// Damaged answers, and answers of another page, are ignored.
function restore() {
  try {
    const found = JSON.parse(localStorage.getItem(kept) || '{}');
    answers = {};
    for (const [item, { verdict, note, seconds }] of Object.entries(found.answers || {})) {
      if (!known.has(item)) continue;
      answers[item] = {
        verdict: VERDICTS.includes(verdict) ? verdict : null, note: String(note || ''), seconds: Number(seconds) || 0,
      };
    }
    at = Math.min(items.length - 1, Math.max(0, Math.trunc(Number(found.at)) || 0));
    localStorage.setItem(`${kept}:`, '');
    localStorage.removeItem(`${kept}:`);
    stored = true;
  } catch {
    stored = false;
  }
}

function keep() {
  try {
    localStorage.setItem(kept, JSON.stringify({ at, answers }));
    stored = true;
  } catch {
    stored = false;
  }
  showStorage();
}

function showStorage() {
  byId('storage').textContent = stored
    ? 'Your answers stay in this browser when you close the page. Send the saved sheet when all items are judged.'
    : 'This browser keeps nothing for this page: save the sheet before you close it, and resume from that sheet later.';
}

// Seconds for which the item was in front of the expert.
function count() {
  const now = performance.now();
  if (document.visibilityState === 'visible') answer(items[at].item).seconds += (now - since) / 1000;
  since = now;
}

// ---- what is shown --------------------------------------------------------------------------------------------------

function pictureOf(number) {
  if (!pictures.has(number)) {
    if (pictures.size > 7) pictures.delete(pictures.keys().next().value);
    pictures.set(number, greyLevels(byId(`picture-${number}`).textContent));
  }
  return pictures.get(number);
}

// A report without the line breaks of its typewriter width; paragraphs and lists keep theirs.
function flowing(text) {
  const lines = (part) => part.split('\n').map((line) => line.trim()).filter(Boolean);
  const joined = (part) => lines(part).reduce((all, line) => all + (/^(\d+[.)]|[-*\u2022])/.test(line) ? '\n' : ' ') + line, '').trim();
  return text.replaceAll('\r', '').split(/\n[ \t]*\n/).map(joined).filter(Boolean).join('\n\n');
}

async function show() {
  const shown = items[at];
  const number = at;
  const { lesion, location, mask, section, report, picture } = shown;
  const places = location.join(' and ') || 'anywhere';
  byId('where').textContent = `Item ${at + 1} of ${items.length} · ${shown.item}`;
  byId('question').textContent = mask ? 'Is this mask right for this lesion, in this location?' : 'Is this lesion absent there?';
  byId('hint').textContent = mask ? '' : 'There is no mask. Acceptable: it is absent. Not acceptable: it is there.';
  byId('lesion').textContent = lesion;
  byId('location').textContent = places;
  byId('section').textContent = section.replaceAll('_', ' ');
  byId('report').textContent = flowing(report);
  byId('note').value = answer(shown.item).note;
  byId('canvas').setAttribute('aria-label', `Chest radiograph, ${mask ? `mask of ${lesion} in ${places}` : 'without a mask'}`);
  for (const id of ['mask', 'outline', 'opacity']) byId(id).disabled = !mask;
  byId('back').disabled = at === 0;
  byId('next').disabled = at === items.length - 1;
  showAnswer();
  view.clear();
  try {
    const [levels, area] = await Promise.all([pictureOf(picture), mask ? greyLevels(mask) : null]);
    if (number !== at) return;
    view.show(levels, area);
    if (items[at + 1]) pictureOf(items[at + 1].picture).catch(() => {});
  } catch (error) {
    if (number === at) say(error.message);
  }
}

function showAnswer() {
  const { verdict } = answer(items[at].item);
  byId('accept').setAttribute('aria-pressed', verdict === VERDICTS[0]);
  byId('reject').setAttribute('aria-pressed', verdict === VERDICTS[1]);
  const judged = items.filter(({ item }) => answers[item]?.verdict).length;
  Object.assign(byId('progress'), { max: items.length, value: judged });
  byId('judged').textContent = `${judged} of ${items.length} judged`;
  byId('undo').disabled = !undone.length;
  byId('open').disabled = judged === items.length;
  return judged;
}

function showView() {
  byId('mask').setAttribute('aria-pressed', view.shown);
  byId('outline').setAttribute('aria-pressed', view.outline);
  byId('opacity').value = Math.round(100 * view.opacity);
  byId('window').value = view.window;
  byId('level').value = view.level;
  byId('levels').textContent = `${view.window} / ${view.level}`;
  byId('zoom').textContent = `${Math.round(100 * view.zoom)} %`;
}

function say(text) {
  byId('status').textContent = text;
}

// ---- what is done ---------------------------------------------------------------------------------------------------

function go(to) {
  if (to < 0 || to >= items.length || to === at) return;
  count();
  at = to;
  keep();
  say('');
  show();
}

function judge(verdict) {
  count();
  const { item } = items[at];
  undone.push({ at, before: answer(item).verdict });
  answer(item).verdict = verdict;
  unsaved = true;
  keep();
  const judged = showAnswer();
  const number = at + 1;
  if (at < items.length - 1) go(at + 1);
  const open = items.length - judged;
  const more = open === 0 ? ' All items are judged: save the sheet.' : at === number - 1 ? ` ${open} others are open: J.` : '';
  say(`Item ${number}: ${verdict}.${more}`);
}

function undo() {
  const last = undone.pop();
  if (!last) return;
  count();
  at = last.at;
  answer(items[at].item).verdict = last.before;
  unsaved = true;
  keep();
  show();
  say(`Item ${at + 1}: the verdict was undone.`);
}

function nextOpen() {
  const open = (index) => !answers[items[index].item]?.verdict;
  const order = items.map((_, step) => (at + 1 + step) % items.length);
  const found = order.find(open);
  if (found !== undefined) go(found);
}

function save() {
  count();
  const rows = items.map(({ item }) => {
    const { verdict, note, seconds } = answer(item);
    return [item, verdict || '', note, Math.round(seconds), page];
  });
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([toCsv(rows)], { type: 'text/csv' }));
  link.download = `review_${expert}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  unsaved = false;
  const left = items.length - showAnswer();
  say(left ? `Saved; ${left} items have no verdict yet.` : 'Saved, complete.');
}

async function load(file) {
  try {
    const found = fromCsv(await file.text(), page, known);
    count();
    answers = { ...answers, ...found };
    undone.length = 0;
    keep();
    show();
    say(`${Object.keys(found).length} items were read from the sheet.`);
  } catch (error) {
    say(error.message);
  }
}

function toggle(what) {
  if (!items[at].mask) return;
  view[what] = !view[what];
  view.draw();
}

function fade(by) {
  view.opacity = Math.min(1, Math.max(0, view.opacity + by));
  view.draw();
}

const ACTIONS = {
  a: () => judge(VERDICTS[0]),
  x: () => judge(VERDICTS[1]),
  arrowright: () => go(at + 1),
  arrowleft: () => go(at - 1),
  u: undo,
  j: nextOpen,
  m: () => toggle('shown'),
  o: () => toggle('outline'),
  '[': () => fade(-0.1),
  ']': () => fade(0.1),
  '+': () => view.zoomBy(ZOOM.step),
  '=': () => view.zoomBy(ZOOM.step),
  '-': () => view.zoomBy(1 / ZOOM.step),
  0: () => { view.reset(); view.draw(); },
  n: () => byId('note').focus(),
  s: save,
};
const BUTTONS = {
  accept: 'a', reject: 'x', next: 'arrowright', back: 'arrowleft', undo: 'u', open: 'j', mask: 'm', outline: 'o', in: '+', out: '-',
  reset: '0', save: 's',
};

function listen() {
  document.addEventListener('keydown', (event) => {
    const { target } = event;
    if (target === byId('note')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    const key = event.key.toLowerCase();
    const undoing = (event.ctrlKey || event.metaKey) && key === 'z';
    if (!undoing && (event.ctrlKey || event.metaKey || event.altKey)) return;
    if (target.matches('input') && key.startsWith('arrow')) return;
    const action = undoing ? undo : ACTIONS[key];
    if (!action || (event.repeat && 'axus'.includes(key))) return; // a key held down judges once
    event.preventDefault();
    action();
  });
  for (const [id, key] of Object.entries(BUTTONS)) byId(id).addEventListener('click', () => ACTIONS[key]());
  byId('opacity').addEventListener('input', ({ target }) => { view.opacity = target.value / 100; view.draw(); });
  for (const id of ['window', 'level']) {
    byId(id).addEventListener('input', () => view.setWindow(Number(byId('window').value), Number(byId('level').value)));
  }
  for (const radio of document.getElementsByName('drag')) {
    radio.addEventListener('change', () => { view.drag = radio.value; });
  }
  byId('note').addEventListener('input', ({ target }) => {
    answer(items[at].item).note = target.value;
    unsaved = true;
    keep();
  });
  byId('load').addEventListener('change', ({ target }) => {
    if (target.files.length) load(target.files[0]);
    target.value = '';
  });
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden') {
      answer(items[at].item).seconds += (performance.now() - since) / 1000;
      keep();
    }
    since = performance.now();
  });
  // the same page in another tab
  window.addEventListener('storage', ({ key }) => {
    if (key !== kept) return;
    const here = at;
    restore();
    at = here;
    showAnswer();
    if (document.activeElement !== byId('note')) byId('note').value = answer(items[at].item).note;
  });
  window.addEventListener('beforeunload', (event) => {
    if (unsaved && !stored) event.preventDefault();
  });
}

if (items.length) {
  listen();
  restore();
  showStorage();
  show();
} else say('There is nothing to review on this page.');
