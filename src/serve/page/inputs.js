
// ---- images and videos: files of the form, which the browser keeps over a reload ------------------

const IMAGES = ['image/png', 'image/jpeg', 'image/webp'], VIDEOS = ['video/mp4', 'video/webm'];
const has = (name) => Boolean(files[name]) && isLegal(INPUTS.find((input) => input.name === name));
// A coarse video excludes other videos.
const refines = (m) => m.refine && Boolean(files.refine);
// Image i of a repeated field, from 0, which needs the image before. `may`: whether the model takes i + 1 images.
function repeatedInput(field, title, i, may) {
  const nameOf = (k) => field + (k ? `_${k + 1}` : '');
  return { name: nameOf(i), key: nameOf(i), title: i ? `${title} ${i + 1}` : title, types: IMAGES,
    legal: (m) => may(m) && (!i || has(nameOf(i - 1))) };
}
// `key`: name in a stored request. `legal`: whether the model takes the file, with the other files.
const INPUTS = [
  { name: 'input_reference', key: 'image', title: 'First frame', types: IMAGES, legal: (m) => m.input_reference },
  { name: 'last_image', key: 'last_image', title: 'Last frame', types: IMAGES, legal: (m) => m.last_image && has('input_reference') },
  { name: 'video', key: 'video', title: 'Video to change', types: [...IMAGES, ...VIDEOS], legal: (m) => m.video && !refines(m) && (m.needs_face || !(m.control && files.control)) && !(m.reference_images && files.reference_image) },
  { name: 'control', key: 'control', title: 'Control video', types: [...IMAGES, ...VIDEOS], legal: (m) => m.control && !refines(m) && (m.needs_face || !files.video) },
  { name: 'face', key: 'face', title: 'Face', types: [...IMAGES, ...VIDEOS], legal: (m) => m.needs_face },
  { name: 'refine', key: 'refine', title: 'Coarse video', types: [...IMAGES, ...VIDEOS], legal: (m) => m.refine },
  ...[...Array(4).keys()].map((i) => repeatedInput('reference_image', 'Reference', i, (m) => m.reference_images > i && !files.video)),
  ...[...Array(16).keys()].map((i) => repeatedInput('identity_image', 'Identity', i, (m) => m.identity_images > i)),
  { name: 'mask', key: 'mask', title: 'Mask', types: [...IMAGES, ...VIDEOS], legal: (m) => m.mask && (has('video') || (has('control') && !m.needs_face)) },
];
let files = {}; // by name; files that the model does not take stay for another model

const isLegal = (input) => Boolean(currentModel() && input.legal(currentModel()));
const sentInputs = () => INPUTS.filter((input) => files[input.name] && isLegal(input));

// Files of the form, stored by the browser.
const shelf = {
  open() {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open('weft', 1);
      request.onupgradeneeded = () => request.result.createObjectStore('files');
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  },
  async put(name, file) {
    try {
      const store = (await this.open()).transaction('files', 'readwrite').objectStore('files');
      if (file) store.put(file, name); else store.delete(name);
    } catch { /* a private window */ }
  },
  async all() {
    const found = {};
    try {
      const store = (await this.open()).transaction('files').objectStore('files');
      await Promise.all(INPUTS.map(({ name }) => new Promise((resolve) => {
        const request = store.get(name);
        request.onsuccess = () => { if (request.result) found[name] = request.result; resolve(); };
        request.onerror = resolve;
      })));
    } catch { /* a private window */ }
    return found;
  },
};

function createTile(input) {
  const tile = make('div', { className: 'tile' });
  tile.setAttribute('data-input', input.name);
  tile.file = make('input', { type: 'file', accept: input.types.join(','), id: 'file-' + input.name, className: 'unseen' });
  tile.label = make('label', { htmlFor: tile.file.id, className: 'button', textContent: 'Choose' });
  tile.shown = make('div', { className: 'shown' });
  tile.hint = make('p', { textContent: input.types === IMAGES ? 'or drop an image' : 'or drop a video or an image' });
  tile.draw = button('Draw', () => drawMask(), 'Paint the part to generate');
  tile.draw.hidden = input.name !== 'mask';
  tile.clear = button('Remove', () => { setFile(input.name, null); changed(); });
  tile.file.setAttribute('aria-label', input.title);
  tile.file.addEventListener('change', () => { takeFile(input, tile.file.files[0]); tile.file.value = ''; });
  tile.append(make('p', { className: 'title', textContent: input.title }), tile.shown,
    make('p', { className: 'buttons' }, tile.file, tile.label, tile.draw, tile.clear), tile.hint);
  for (const name of ['dragenter', 'dragover']) tile.addEventListener(name, (event) => {
    event.preventDefault();
    tile.classList.add('over');
  });
  tile.addEventListener('dragleave', () => tile.classList.remove('over'));
  tile.addEventListener('drop', (event) => {
    const file = event.dataTransfer.files[0];
    event.preventDefault();
    tile.classList.remove('over');
    if (!file || (!input.types.includes(file.type) && /\.(mp4|jsonl|ndjson)$/.test(file.name))) return; // files.js uses these
    event.stopPropagation();
    takeFile(input, file);
  });
  return tile;
}

function takeFile(input, file) {
  if (!file || edited) return;
  if (!input.types.includes(file.type))
    return toast(`The file is not a PNG, JPEG or WebP image${input.types === IMAGES ? '' : ', and not an MP4 or WebM video'}.`);
  setFile(input.name, file);
  changed();
}

function showFile(tile, file) {
  if (tile.shown.of === file) return;
  const before = tile.shown.firstChild;
  if (before) URL.revokeObjectURL(before.src);
  tile.shown.of = file;
  tile.shown.replaceChildren();
  if (!file) return;
  const what = file.type.startsWith('video/') ? make('video', { muted: true, controls: true, loop: true, playsInline: true })
    : make('img', { alt: file.name });
  what.src = URL.createObjectURL(file);
  tile.shown.append(what);
}

// Shows the inputs that the model takes.
function showInputs() {
  const legal = INPUTS.filter(isLegal);
  show($('tiles'), legal, (input) => input.name, createTile, (tile, input) => {
    const file = files[input.name] || null;
    showFile(tile, file);
    tile.clear.hidden = !file || Boolean(edited);
    tile.label.hidden = tile.hint.hidden = Boolean(edited);
    tile.file.disabled = Boolean(edited);
    tile.draw.hidden = input.name !== 'mask' || Boolean(edited);
  });
  $('inputs').hidden = !legal.length || (Boolean(edited) && !sentInputs().length);
  $('strength-row').hidden = !has('video');
}

function setFile(name, file) {
  const refined = has('refine');
  if (file) files[name] = file; else delete files[name];
  if (!edited) shelf.put(name, file);
  showInputs();
  if (has('refine') === refined) return;
  listOptions();
  setLegalFrames();
  field.guidance_scale.value = refined ? currentModel().guidance_scale : 1;
}

function setFiles(all) {
  for (const { name } of INPUTS) setFile(name, all[name] || null);
}

// The files that a job was created with.
async function filesOf(job) {
  const found = {};
  for (const { name, key } of INPUTS) {
    if (!job.request[key]) continue;
    const answer = await fetch(`/v1/jobs/${job.id}/inputs/${name}`, { headers: headers() });
    if (!answer.ok) throw new Error('A file of the job cannot be read.');
    found[name] = new File([await answer.blob()], job.request[key], { type: answer.headers.get('Content-Type') });
  }
  return found;
}
