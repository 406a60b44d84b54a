'use strict';
// Elements, stored values, requests. Texts of requests and answers are set as text, never as HTML.
const $ = (id) => document.getElementById(id);

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties || {});
  element.append(...children);
  return element;
}

const stored = {
  read(key, otherwise) {
    try {
      const text = localStorage.getItem('weft.' + key);
      return text === null ? otherwise : JSON.parse(text);
    } catch { return otherwise; }
  },
  write(key, value) {
    try { localStorage.setItem('weft.' + key, JSON.stringify(value)); } catch { /* a private window */ }
  },
};

let toastTimer = 0;
function toast(text) {
  $('toast').textContent = text;
  $('toast').hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $('toast').hidden = true; }, 5000);
}

class ServerError extends Error {
  constructor(status, error) {
    super(error.message || 'the server answered with status ' + status);
    this.status = status;
    this.field = error.param;
  }
}

class LostError extends Error {}

function headers(more) {
  const token = stored.read('token', '');
  return token ? { ...more, Authorization: 'Bearer ' + token } : { ...more };
}

// The answer as JSON. A form is sent as it is, other bodies as JSON.
async function ask(method, path, body) {
  const options = { method, headers: headers() };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.headers['Content-Type'] = 'application/json';
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options).catch(() => { throw new LostError('The server does not answer.'); });
  const json = await answer.json().catch(() => ({}));
  if (answer.status === 401) login();
  if (!answer.ok) throw new ServerError(answer.status, json.error || {});
  return json;
}

function login() {
  if (!$('login').open) $('login').showModal();
}
$('login').addEventListener('close', () => {
  stored.write('token', $('token').value.trim());
  $('token').value = '';
  location.reload();
});

// ---- texts -----------------------------------------------------------------------------------

function duration(seconds) {
  if (!(seconds >= 0)) return 'an unknown time';
  if (seconds < 1) return 'less than 1 s';
  if (seconds < 90) return Math.round(seconds) + ' s';
  if (seconds < 5400) return Math.round(seconds / 60) + ' min';
  return (seconds / 3600).toFixed(1) + ' h';
}

function size(bytes) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)) + ' ' + units[unit];
}

function clock(seconds) {
  const time = new Date(1000 * seconds), today = new Date().toDateString() === time.toDateString();
  return time.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) + (today ? '' : ' of ' + time.toLocaleDateString());
}

function settings(request) {
  return `${request.width}×${request.height}, ${request.frames} frames, ${request.steps} step${request.steps === 1 ? '' : 's'}, seed ${request.seed}, guidance ` +
    `${request.guidance_scale}${request.sampler ? ', ' + request.sampler : ''}${request.lora ? ', ' + request.lora : ''}` +
    ['precision', 'vae_precision', 'weights'].map((name) => request[name] ? `, ${name.replace('_', ' ')} ${request[name]}` : '').join('') +
    `, ${request.model}`;
}

const isFinal = (job) => ['completed', 'failed', 'cancelled', 'parked'].includes(job.status);

function button(label, run, title) {
  const b = make('button', { type: 'button', textContent: label });
  if (title) b.title = title;
  b.addEventListener('click', async () => {
    b.disabled = true;
    try { await run(b); } catch (e) { toast(e.message); }
    b.disabled = false;
  });
  return b;
}

async function copy(text, what) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = make('textarea', { value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  toast(what + ' was copied.');
}
const quote = (text) => "'" + String(text).replaceAll("'", "'\\''") + "'";

// The elements of a list by key, changed in place so that focus and players stay.
function show(container, items, key, create, update) {
  container.nodes = container.nodes || new Map();
  const seen = new Set();
  let at = container.firstElementChild;
  for (const item of items) {
    let node = container.nodes.get(key(item));
    if (!node) container.nodes.set(key(item), node = create(item));
    seen.add(key(item));
    update(node, item);
    if (node === at) at = at.nextElementSibling;
    else if (node.nextElementSibling !== at || node.parentNode !== container) container.insertBefore(node, at);
  }
  for (const [id, node] of container.nodes)
    if (!seen.has(id)) { node.remove(); container.nodes.delete(id); }
}
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
