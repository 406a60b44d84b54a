
// ---- the form: legal values of the model, price, presets -----------------------------------------
let capabilities = { models: [] };
let image = null;   // file of the first frame
let edited = null;  // job whose values the form changes
const form = $('form'), field = form.elements;
const NUMBERS = ['width', 'height', 'frames', 'steps', 'seed', 'guidance_scale', 'fps', 'preview', 'priority'];

const currentModel = () => capabilities.models.find((m) => m.id === field.model.value) || capabilities.models[0];

function setLegal(input, least, step) {
  Object.assign(input, { min: least, step });
  input.title = step > 1 ? `${least}, ${least + step}, ${least + 2 * step} ...` : '';
}

// The nearest legal value, so that only legal values are sent.
function snap(input) {
  const value = Number(input.value), least = Number(input.min) || 0, step = Number(input.step);
  if (input.value === '' || !Number.isFinite(value) || !(step > 0)) return;
  const steps = Math.max(0, Math.round((value - least) / step)), most = Number(input.max) || Infinity;
  input.value = Math.min(least + steps * step, most);
}

function useModel(defaults) {
  const m = currentModel();
  if (!m) return;
  setLegal(field.width, m.width.multiple_of, m.width.multiple_of);
  setLegal(field.height, m.height.multiple_of, m.height.multiple_of);
  setLegal(field.frames, m.frames.least, m.frames.step);
  field.sampler.replaceChildren(make('option', { value: '', textContent: "model's own" }),
    ...m.samplers.map((name) => make('option', { value: name, textContent: name })));
  field.fps.placeholder = m.fps;
  $('drop').hidden = !m.input_reference;
  if (!m.input_reference) setImage(null);
  if (!defaults) return;
  field.width.value = m.width.default || 16 * m.width.multiple_of;
  field.height.value = m.height.default || 16 * m.height.multiple_of;
  field.frames.value = m.frames.default || m.frames.least + 4 * m.frames.step;
  Object.entries({ steps: 30, seed: 0, grid: 1, guidance_scale: m.guidance_scale, fps: '', preview: 0, priority: 0, sampler: '', lora: '' })
    .forEach(([name, value]) => { field[name].value = value; });
}

function values() {
  const out = { model: field.model.value, prompt: field.prompt.value, negative_prompt: field.negative_prompt.value };
  for (const name of NUMBERS) if (field[name].value !== '') out[name] = Number(field[name].value);
  if (field.sampler.value) out.sampler = field.sampler.value;
  if (field.lora.value && capabilities.loras.length) out.lora = field.lora.value.replace(/\s/g, '');
  if (field.webhook.value && capabilities.webhooks) out.webhook = field.webhook.value;
  return out;
}

// Sets the form to the values of a request. The model comes first: it determines the legal values.
function fill(request) {
  if (capabilities.models.some((m) => m.id === request.model)) field.model.value = request.model;
  useModel(false);
  field.lora.value = '';
  for (const name of ['prompt', 'negative_prompt', 'sampler', 'webhook', 'lora', ...NUMBERS])
    if (request[name] !== undefined) field[name].value = name === 'fps' && !request.fps ? '' : request[name];
  if (request.preview === undefined) field.preview.value = 0;
  field.lines.checked = false;
  field.grid.value = request.grid || 1;
  changed();
}

function setImage(file) {
  image = file;
  if ($('image-shown').src) URL.revokeObjectURL($('image-shown').src);
  $('image-shown').hidden = $('image-clear').hidden = !file;
  if (file) $('image-shown').src = URL.createObjectURL(file);
  else { $('image-shown').removeAttribute('src'); $('image').value = ''; }
}

function body(request) {
  if (!image) return request;
  const data = new FormData();
  for (const [name, value] of Object.entries(request)) data.append(name, value);
  data.append('input_reference', image, image.name);
  return data;
}

// ---- price ------------------------------------------------------------------------------------

let priceTimer = 0, priceNumber = 0;

function showPrice(text, bad) {
  $('price').classList.toggle('bad', Boolean(bad));
  setText($('price'), text);
}

async function predict() {
  const number = ++priceNumber, request = values();
  if (!request.prompt.trim()) request.prompt = '-'; // the price does not depend on the words
  delete request.webhook;
  if (!form.checkValidity() && field.prompt.value.trim()) return showPrice('A value is not legal.', true);
  const m = currentModel();
  if (m && m.needs_input_reference && !image && !edited) return showPrice('This model starts from an image. Add one above.', true);
  try {
    const p = await ask('POST', '/v1/jobs/price', body(request));
    if (number !== priceNumber) return;
    const count = videos();
    showPrice(`${duration(p.seconds)}${count > 1 ? ` each, ${duration(count * p.seconds)} for ${count} videos` : ''}, ` +
      `${size(p.bytes)} of memory. ` + (edited ? '' : p.queue_position ? `Starts after ${p.queue_position} ` +
      `other${p.queue_position > 1 ? 's' : ''}, about ${clock(p.expected_start)}, ends about ${clock(p.expected_end)}.`
        : `Starts at once, ends about ${clock(p.expected_end)}.`));
  } catch (e) {
    if (number === priceNumber) showPrice(e.field ? `${e.field}: ${e.message}` : e.message, true);
  }
}

function lines() {
  const all = field.prompt.value.split('\n').map((line) => line.trim()).filter(Boolean);
  return field.lines.checked && !edited ? all : [field.prompt.value];
}
const videos = () => Math.max(1, lines().length) * (edited ? 1 : Number(field.grid.value) || 1);

function changed() {
  if (!edited) stored.write('form', { ...values(), grid: field.grid.value, lines: field.lines.checked });
  clearTimeout(priceTimer);
  priceTimer = setTimeout(predict, 300);
}

// ---- submission ---------------------------------------------------------------------------------

async function submit() {
  if (!form.reportValidity()) return;
  const request = values();
  if (edited) {
    await ask('PATCH', '/v1/jobs/' + edited, { sampler: '', lora: '', ...request });
    toast('The job was changed.');
    return edit(null);
  }
  for (const prompt of lines())
    for (let i = 0; i < Number(field.grid.value); i++)
      await ask('POST', '/v1/jobs', body({ ...request, prompt, seed: request.seed + i }));
  toast(videos() > 1 ? videos() + ' videos were added to the queue.' : 'The video was added to the queue.');
}

function edit(job) {
  edited = job ? job.id : null;
  $('editing').hidden = $('edit-end').hidden = !job;
  setText($('editing'), job ? 'The form changes a job of the queue.' : '');
  setText($('submit'), job ? 'Save changes' : 'Add to queue');
  field.grid.disabled = field.lines.disabled = field.model.disabled = Boolean(job);
  if (job) {
    fill({ ...job.request, priority: job.priority, webhook: job.webhook ? job.webhook.url : '' });
    field.prompt.focus();
  } else {
    fill(stored.read('form', {}));
  }
}

function reuse(job) {
  edit(null);
  fill({ ...job.request, priority: 0 });
  field.prompt.focus();
  toast('The form has the settings of the video.');
}

// ---- presets, commands ----------------------------------------------------------------------------

function listPresets(chosen) {
  const names = Object.keys(stored.read('presets', {})).sort();
  $('preset').replaceChildren(make('option', { value: '', textContent: 'choose' }),
    ...names.map((name) => make('option', { value: name, textContent: name })));
  $('preset').value = chosen || '';
}

function savePreset() {
  const name = prompt('Name of the preset');
  if (!name) return;
  stored.write('presets', { ...stored.read('presets', {}), [name]: values() });
  listPresets(name);
}

function deletePreset() {
  const presets = stored.read('presets', {});
  delete presets[$('preset').value];
  stored.write('presets', presets);
  listPresets();
}

function curl() {
  const token = stored.read('token', '') ? " -H 'Authorization: Bearer TOKEN'" : '', url = quote(location.origin + '/v1/videos');
  if (!image) return `curl -s${token} ${url} -H 'Content-Type: application/json' -d ${quote(JSON.stringify(values()))}`;
  return `curl -s${token} ${url} ` + Object.entries(values()).map(([k, v]) => '--form-string ' + quote(k + '=' + v)).join(' ') +
    ' -F ' + quote('input_reference=@' + image.name);
}

function command() {
  const v = values(), options = { model: v.model, prompt: v.prompt, negative: v.negative_prompt, frames: v.frames, height: v.height,
    width: v.width, 'preview-interval': v.preview || '', steps: v.steps, seed: v.seed, 'guidance-scale': v.guidance_scale, fps: v.fps, sampler: v.sampler,
    image: image ? image.name : '', out: 'video.mp4' };
  return 'weft generate ' + Object.entries(options).filter(([, value]) => value !== undefined && value !== '')
    .map(([name, value]) => `--${name} ${quote(value)}`).join(' ') +
    (v.lora ? v.lora.split(',').map((lora) => ' --lora ' + quote(lora)).join('') : '');
}

// ---- events -----------------------------------------------------------------------------------------

function startForm() {
  field.model.replaceChildren(...capabilities.models.map((m) => make('option', { value: m.id, textContent: m.id })));
  $('lora-row').hidden = !capabilities.loras.length;
  $('loras').replaceChildren(...capabilities.loras.map((lora) => make('option', { value: lora.id })));
  $('webhook-row').hidden = !capabilities.webhooks;
  useModel(true);
  const before = stored.read('form', null);
  if (before) {
    fill(before);
    field.lines.checked = Boolean(before.lines);
  }
  listPresets();
  changed();
  form.addEventListener('input', changed);
  field.model.addEventListener('change', () => { useModel(true); changed(); });
  for (const name of ['width', 'height', 'frames']) field[name].addEventListener('change', () => { snap(field[name]); changed(); });
  form.addEventListener('submit', (event) => { event.preventDefault(); });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('submit').click();
  });
  $('submit').addEventListener('click', async () => {
    $('submit').disabled = true;
    try { await submit(); } catch (e) { showPrice(e.field ? `${e.field}: ${e.message}` : e.message, true); }
    $('submit').disabled = false;
    refresh();
  });
  $('dice').addEventListener('click', () => { field.seed.value = Math.floor(Math.random() * 2 ** 31); changed(); });
  $('reset').addEventListener('click', () => { useModel(true); changed(); });
  $('edit-end').addEventListener('click', () => edit(null));
  $('copy-curl').addEventListener('click', () => copy(curl(), 'The curl command'));
  $('copy-command').addEventListener('click', () => copy(command(), 'The weft command'));
  $('preset').addEventListener('change', () => { const p = stored.read('presets', {})[$('preset').value]; if (p) fill(p); });
  $('preset-save').addEventListener('click', savePreset);
  $('preset-delete').addEventListener('click', deletePreset);
  $('image').addEventListener('change', () => { setImage($('image').files[0] || null); changed(); });
  $('image-clear').addEventListener('click', () => { setImage(null); changed(); });
  startDrop();
}

function startDrop() {
  const drop = $('drop');
  for (const name of ['dragenter', 'dragover']) drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add('over');
  });
  drop.addEventListener('dragleave', () => drop.classList.remove('over'));
  drop.addEventListener('drop', (event) => {
    event.preventDefault();
    drop.classList.remove('over');
    const file = event.dataTransfer.files[0];
    if (!file || /\.(mp4|jsonl|ndjson)$/.test(file.name)) return; // files.js uses these
    if (!/^image\/(png|jpeg|webp)$/.test(file.type)) return toast('The file is not a PNG, JPEG or WebP image.');
    setImage(file);
    changed();
  });
}
