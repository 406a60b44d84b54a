
// ---- the videos of the form: a list of prompts, seeds and values -------------------------------------

const MOST_VIDEOS = 256; // that one submission adds

function lines() {
  const all = field.prompt.value.split('\n').map((line) => line.trim()).filter(Boolean);
  return field.lines.checked && !edited ? all : [field.prompt.value];
}

function showVaried() {
  $('varied-row').hidden = !field.vary.value;
  field.varied.required = Boolean(field.vary.value);
}

// The weight of one adapter in the text of all.
function withWeight(text, name, weight) {
  const others = (text || '').split(',').filter((part) => part && part.split(':')[0] !== name);
  return [...others, `${name}:${weight}`].join(',');
}

// The changes of a request by the values that the form varies, each a legal value.
function changes(request) {
  const what = field.vary.value, list = field.varied.value.split(',').map((text) => text.trim()).filter(Boolean);
  if (!what || edited) return [{}];
  if (!list.length) throw new Error('Give the values to vary, such as 3, 5, 7.');
  return list.map((text) => {
    if (what === 'sampler' || what in COMPUTE) {
      if ([...field[what].options].some((option) => option.value === text)) return { [what]: text };
      throw new Error(`"${text}" is not a ${what === 'sampler' ? what : 'value'} of the model.`);
    }
    const value = Number(text);
    if (!Number.isFinite(value)) throw new Error(`"${text}" is not a number.`);
    if (what.startsWith('lora ')) return { lora: withWeight(request.lora, what.slice(5), Math.min(10, Math.max(-10, value))) };
    if (what === 'strength' && !has('video')) throw new Error('The strength needs a video to change.');
    return { [what]: nearest(field[what], value) };
  });
}

const count = () => Math.max(1, lines().length) * (edited ? 1 : Number(field.grid.value) || 1);

// All requests: a row of seeds for each prompt and value.
function requests() {
  const request = values(), all = [];
  for (const prompt of lines())
    for (const change of changes(request))
      for (let i = 0; i < Number(field.grid.value); i++) all.push({ ...request, ...change, prompt, seed: request.seed + i });
  if (all.length > MOST_VIDEOS) throw new Error(`The form has ${all.length} videos; add up to ${MOST_VIDEOS} at once.`);
  return all;
}

// ---- price ------------------------------------------------------------------------------------

let priceTimer = 0, priceNumber = 0;
let waitsForServer = false; // a video is added as soon as a server answers

function showPrice(text, bad) {
  $('price').classList.toggle('bad', Boolean(bad));
  setText($('price'), text);
}

const refusal = (e) => e.field ? `${e.field}: ${e.message}` : e.message;

function missing() {
  const m = currentModel();
  if (m && m.needs_input_reference && !has('input_reference')) return 'This model starts from an image. Add one above.';
  if (m && m.needs_last_image && !has('last_image')) return 'This model ends with an image. Add one above.';
  if (m && m.needs_control && !has('control')) return 'This model follows a control video. Add one above.';
  if (m && m.needs_face && !has('face')) return 'This model gives a character the face of a video. Add one above.';
  if (m && m.needs_face && has('video') !== has('mask')) return 'A background needs a mask that is white where the character is. Add one above.';
  const bytes = sentInputs().reduce((sum, { name }) => sum + files[name].size, 0);
  return capabilities.limits && bytes > capabilities.limits.form_bytes - 65536
    ? `The files have ${size(bytes)}; the server takes ${size(capabilities.limits.form_bytes)}.` : '';
}

async function predict() {
  const number = ++priceNumber, request = values();
  if (!request.prompt.trim()) request.prompt = '-'; // the price does not depend on the words
  delete request.webhook;
  if (!form.checkValidity() && field.prompt.value.trim()) return showPrice('A value is not legal.', true);
  try {
    if (missing()) throw new Error(missing());
    const prices = await Promise.all(changes(request).map((change) => ask('POST', '/v1/jobs/price', body({ ...request, ...change }))));
    if (number !== priceNumber) return;
    const first = prices[0], videos = count() * prices.length, seconds = prices.reduce((sum, p) => sum + p.seconds, 0) / prices.length;
    showPrice(`${duration(seconds)}${videos > 1 ? `${prices.length > 1 ? ' on average' : ' each'}, ${duration(videos * seconds)} for ${videos} videos` : ''}, ` +
      `${size(Math.max(...prices.map((p) => p.bytes)))} of memory. ` + (edited ? '' : first.queue_position ? `Starts after ${first.queue_position} ` +
      `other${first.queue_position > 1 ? 's' : ''}, about ${clock(first.expected_start)}, ends about ${clock(first.expected_end - first.seconds + videos * seconds)}.`
        : `Starts at once, ends about ${clock(first.expected_end - first.seconds + videos * seconds)}.`));
  } catch (e) {
    if (number === priceNumber && !waitsForServer) showPrice(refusal(e), true);
  }
}

function changed() {
  setLegalFrames();
  if (!edited) stored.write('form', { ...values(), strength: field.strength.value, grid: field.grid.value, lines: field.lines.checked, vary: field.vary.value,
    varied: field.varied.value });
  clearTimeout(priceTimer);
  priceTimer = setTimeout(predict, 300);
}

// ---- submission ---------------------------------------------------------------------------------

const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

// Repeats a request until a server answers. The id of the request keeps a second job from being created.
async function persist(method, path, makeBody) {
  for (;;) {
    try {
      const answer = await ask(method, path, makeBody());
      waitsForServer = false;
      return answer;
    } catch (e) {
      waitsForServer = e instanceof LostError || e.status === 503;
      if (!waitsForServer) throw e;
      showPrice('The server does not answer. The video is added as soon as it does.', true);
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
}

async function submit() {
  if (!form.reportValidity()) return;
  if (missing()) throw new Error(missing());
  if (edited) {
    await ask('PATCH', '/v1/jobs/' + edited, { sampler: '', lora: '', ...optionValues(true), ...values() });
    toast('The job was changed.');
    return edit(null);
  }
  const all = requests();
  for (const request of all) {
    const id = newId();
    await persist('POST', '/v1/jobs', () => body({ ...request, request_id: id }));
  }
  toast(all.length > 1 ? all.length + ' videos were added to the queue.' : 'The video was added to the queue.');
  changed();
}

// ---- presets, commands ----------------------------------------------------------------------------

function listPresets(chosen) {
  setOptions($('preset'), [['', 'choose'], ...Object.keys(stored.read('presets', {})).sort().map((name) => [name, name])], chosen || '');
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
  const token = stored.read('token', '') ? " -H 'Authorization: Bearer TOKEN'" : '', url = quote(location.origin + '/v1/videos'), sent = sentInputs();
  if (!sent.length) return `curl -s${token} ${url} -H 'Content-Type: application/json' -d ${quote(JSON.stringify(values()))}`;
  return `curl -s${token} ${url} ` + Object.entries(values()).map(([k, v]) => '--form-string ' + quote(k + '=' + v)).join(' ') +
    sent.map(({ name }) => ' -F ' + quote(`${name}=@"${files[name].name.replace(/["\\]/g, '\\$&')}"`)).join('');
}

function command() {
  const v = values(), options = { model: v.model, prompt: v.prompt, negative: v.negative_prompt, frames: v.frames, height: v.height,
    width: v.width, 'preview-interval': v.preview || '', steps: v.steps, seed: v.seed, 'guidance-scale': v.guidance_scale, fps: v.fps,
    sampler: v.sampler, strength: v.strength,
    ...Object.fromEntries(Object.entries(COMPUTE).map(([name, own]) => [name.replace('_', '-'), v[name] === own ? '' : v[name]])),
    ...Object.fromEntries(Object.entries(optionValues()).map(([name, value]) => [name.replace(/_/g, '-'), value])), out: 'video.mp4' };
  // reference images and images of an identity repeat one option
  const sent = sentInputs().map(({ name, key }) => [key.replace(/_\d+$/, '').replace('_', '-'), files[name].name]);
  return 'weft generate ' + [...Object.entries(options), ...sent].filter(([, value]) => value !== undefined && value !== '')
    .map(([name, value]) => `--${name} ${quote(value)}`).join(' ') +
    (v.lora ? v.lora.split(',').map((lora) => ' --lora ' + quote(lora)).join('') : '');
}

// ---- events -----------------------------------------------------------------------------------------

async function startForm() {
  useCapabilities();
  useModel(true);
  const before = stored.read('form', null);
  files = await shelf.all();
  useModel(true);
  if (before) fill(before);
  listPresets();
  changed();
  form.addEventListener('input', changed);
  field.model.addEventListener('change', () => { useModel(true); changed(); });
  field.vary.addEventListener('change', () => { showVaried(); changed(); });
  for (const name of ['width', 'height', 'frames']) field[name].addEventListener('change', () => { snap(field[name]); changed(); });
  form.addEventListener('submit', (event) => { event.preventDefault(); });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('submit').click();
  });
  $('submit').addEventListener('click', async () => {
    $('submit').disabled = true;
    try { await submit(); } catch (e) { showPrice(refusal(e), true); }
    $('submit').disabled = false;
    refresh(true);
  });
  $('dice').addEventListener('click', () => { field.seed.value = Math.floor(Math.random() * 2 ** 31); changed(); });
  $('reset').addEventListener('click', () => { useModel(true); changed(); });
  $('edit-end').addEventListener('click', () => edit(null));
  $('copy-curl').addEventListener('click', () => copy(curl(), 'The curl command'));
  $('copy-command').addEventListener('click', () => copy(command(), 'The weft command'));
  $('preset').addEventListener('change', () => { const p = stored.read('presets', {})[$('preset').value]; if (p) fill(p); });
  $('preset-save').addEventListener('click', savePreset);
  $('preset-delete').addEventListener('click', deletePreset);
  startMask();
}
