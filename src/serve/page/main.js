
// ---- reading the server: the page shows its state, which survives reloads and restarts ----------------------

let older = [];      // jobs after the first page
let reads = 0, readTimer = 0, wasLost = false;

async function read() {
  const [list, machine] = await Promise.all([ask('GET', '/v1/jobs?limit=100'), ask('GET', '/v1/machine')]);
  const first = new Set(list.data.map((job) => job.id)), rest = older.filter((job) => !first.has(job.id));
  $('older').hidden = !(older.length ? older.more : list.has_more);
  $('older').last = older.length ? older[older.length - 1].id : list.last_id;
  showQueue([...list.data, ...rest]);
  showGallery([...list.data, ...rest]);
  showMachine(machine, list.data);
}

// Reads at once, and again after a second; every 10 s while the page is hidden.
async function refresh() {
  const number = ++reads;
  clearTimeout(readTimer);
  try {
    await read();
    if (wasLost) predict();
    wasLost = false;
  } catch (e) {
    wasLost = e instanceof LostError;
    setText($('state'), wasLost ? e.message + ' Trying again.' : e.message);
    if (!wasLost && !(e instanceof ServerError)) console.error(e);
  }
  if (number === reads && !$('login').open) readTimer = setTimeout(refresh, document.hidden ? 10000 : 1000);
}

function showMachine(m, jobs) {
  const running = jobs.filter((job) => job.status === 'running').length, waiting = jobs.filter((job) => job.status === 'queued').length;
  setText($('state'), `${running ? 'generating' : 'idle'}, ${waiting} waiting`);
  const facts = {
    Version: m.version,
    Processors: `${m.processors}, load ${m.load.toFixed(1)}`,
    Memory: `${size(m.available_bytes)} of ${size(m.memory_bytes)} free`,
    Worker: m.worker_bytes ? size(m.worker_bytes) : 'not running',
    Disk: `${size(m.disk_free_bytes)} free`,
    Workers: `${m.workers_started} started, ${m.workers_crashed} crashed`,
    Models: capabilities.models.map((model) => model.id).join(', '),
  };
  const failed = jobs.find((job) => ['failed', 'parked'].includes(job.status));
  if (failed && failed.error) facts['Last failure'] = failed.error.message;
  show($('facts'), Object.entries(facts).flatMap(([name, value]) => [['dt', name, name], ['dd', name, value]]),
    (item) => item[0] + item[1], (item) => make(item[0]), (node, item) => setText(node, item[2]));
}

async function showOlder() {
  const page = await ask('GET', '/v1/jobs?limit=100&after=' + $('older').last), more = page.has_more;
  older = [...older, ...page.data];
  older.more = more;
  refresh();
}

function startTheme() {
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    setText($('theme'), 'Theme: ' + (theme || 'system'));
  };
  apply(stored.read('theme', ''));
  $('theme').addEventListener('click', () => {
    const next = { '': 'light', light: 'dark', dark: '' }[stored.read('theme', '')] ?? '';
    stored.write('theme', next);
    apply(next);
  });
}

async function start() {
  startTheme();
  startGallery();
  startFiles();
  $('older').addEventListener('click', () => showOlder().catch((e) => toast(e.message)));
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  for (;;) {
    try {
      capabilities = await ask('GET', '/capabilities');
      break;
    } catch (e) {
      setText($('state'), e.message);
      if (e.status === 401) return;
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
  startForm();
  refresh();
}
start();
