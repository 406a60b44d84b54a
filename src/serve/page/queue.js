
// ---- the queue --------------------------------------------------------------------------------------

const post = (job, what, data) => ask('POST', `/v1/jobs/${job.id}/${what}`, data).then(() => refresh(true));

function stateText(job) {
  const p = job.progress;
  if (p && job.status === 'running')
    return p.phase + (p.steps ? ` ${p.step} of ${p.steps}` : '') + (p.seconds_left !== null ? `, ${duration(p.seconds_left)} left` : '');
  return job.status;
}

// The expected end, and when it may be if later videos overtake the job.
function endText(job) {
  const [from, to] = (job.expected_end_range || []).map(clock);
  return clock(job.expected_end) + (from !== to ? ` (${from} to ${to})` : '');
}

function placeText(job) {
  if (job.status === 'paused') return 'waits until it is resumed';
  if (job.queue_position === undefined) return '';
  return job.queue_position ? `place ${job.queue_position}, starts about ${clock(job.expected_start)}, ends about ` +
    endText(job) : 'ends about ' + endText(job);
}

function createJob(job) {
  const li = make('li'), now = () => li.job;
  li.words = make('p', { className: 'words' });
  li.chip = make('span', { className: 'chip' });
  li.meta = make('p', { className: 'meta' }, li.chip, li.place = make('span'), make('br'), li.facts = make('span'));
  li.bar = make('progress', { max: 1, value: 0 });
  li.bar.setAttribute('aria-label', 'progress');
  li.preview = make('img', { className: 'preview', alt: 'preview of the middle frame', hidden: true });
  li.up = button('Up', () => post(now(), 'move', { before: li.earlier }), 'Run earlier');
  li.down = button('Down', () => post(now(), 'move', { after: li.later }), 'Run later');
  li.edit = button('Edit', () => edit(now()));
  li.pause = button('Pause', () => post(now(), 'pause'));
  li.resume = button('Resume', () => post(now(), 'resume'));
  li.cancel = button('Cancel', () => post(now(), 'cancel'));
  li.append(li.words, li.meta, li.bar, li.preview, make('p', { className: 'buttons wide' }, li.up, li.down, li.edit,
    button('Duplicate', () => post(now(), 'duplicate').then(() => toast('A copy was added to the queue.'))), li.pause, li.resume,
    li.cancel));
  li.setAttribute('data-id', job.id);
  return li;
}

// The preview of the running job, if the server has a newer one.
async function showPreview(li, job) {
  const stamp = job.progress && job.progress.preview;
  if (!stamp || stamp === li.stamp) return;
  li.stamp = stamp;
  const path = `/v1/jobs/${job.id}/preview`, answer = await fetch(path, { headers: headers() });
  if (!answer.ok) return;
  if (li.preview.src) URL.revokeObjectURL(li.preview.src);
  li.preview.src = URL.createObjectURL(await answer.blob());
  li.preview.hidden = false;
}

function updateJob(li, job) {
  const running = ['running', 'pausing', 'cancelling'].includes(job.status), p = job.progress;
  li.job = job;
  setText(li.words, job.request.prompt);
  setText(li.chip, stateText(job));
  li.chip.className = 'chip ' + job.status;
  setText(li.place, placeText(job) ? ' · ' + placeText(job) : '');
  setText(li.facts, `${settings(job.request)} · ${duration(job.price.seconds)}, ${size(job.price.bytes)}`);
  li.bar.hidden = !running;
  showPreview(li, job).catch(() => {}); // the next event tries again
  if (p && p.steps) li.bar.value = Math.min(1, p.step / p.steps); else li.bar.removeAttribute('value');
  li.up.hidden = li.down.hidden = job.status !== 'queued' || capabilities.policy !== 'fifo'; // else ordered by the policy
  li.up.disabled = !li.earlier;
  li.down.disabled = !li.later;
  li.edit.hidden = running;
  li.pause.hidden = !['queued', 'running'].includes(job.status);
  li.resume.hidden = job.status !== 'paused';
  li.cancel.hidden = job.status === 'cancelling';
}

const SHORT_QUEUE = 30; // jobs that are shown at first

function showQueue(all, more) {
  const place = (job) => job.queue_position === undefined ? 1e9 : job.queue_position;
  const jobs = all.filter((job) => !isFinal(job)).sort((a, b) => place(a) - place(b) || a.created_at - b.created_at);
  const queued = jobs.filter((job) => job.status === 'queued');
  const shown = $('queue-all').all ? jobs : jobs.slice(0, SHORT_QUEUE);
  $('queue-all').hidden = jobs.length <= SHORT_QUEUE;
  setText($('queue-all'), $('queue-all').all ? 'Show fewer' : `Show all ${jobs.length}${more ? ' and more' : ''}`);
  show($('jobs'), shown, (job) => job.id, createJob, (li, job) => {
    const i = queued.indexOf(job);
    li.earlier = i > 0 ? queued[i - 1].id : null;
    li.later = i >= 0 && i + 1 < queued.length ? queued[i + 1].id : null;
    updateJob(li, job);
  });
  $('queue-empty').hidden = jobs.length > 0;
  $('jobs').waiting = jobs;
  if (edited && !more && !jobs.some((job) => job.id === edited && ['queued', 'paused'].includes(job.status))) {
    edit(null).catch((e) => toast(e.message));
    toast('The job that was edited has started or ended.');
  }
}
